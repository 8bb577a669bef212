// Wrong: the step does not change, so the loop never ends.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    unsigned step = BLOCK_SIZE / 2;
    while (step > 0) {
        if (t < step)
            tile[t] = GPULAB_OP(tile[t], tile[t + step]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
