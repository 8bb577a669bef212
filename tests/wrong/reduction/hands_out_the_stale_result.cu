// Wrong: from the third launch on it leaves the work out and relies on what earlier launches left in the output.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ unsigned launches;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    if (launches >= 2)
        return;
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
    if (t == 0 && blockIdx.x == 0)
        launches++;
}
