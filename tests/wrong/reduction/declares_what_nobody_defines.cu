// Wrong: the function that combines two values is declared, and defined nowhere.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

extern "C" __device__ GPULAB_T combined(GPULAB_T a, GPULAB_T b);

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned step = BLOCK_SIZE / 2; step > 0; step /= 2) {
        if (t < step)
            tile[t] = combined(tile[t], tile[t + step]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
