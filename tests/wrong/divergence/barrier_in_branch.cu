// Wrong: threads past the end skip the barrier that the others wait at.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    __shared__ float tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;

    if (first + tid < n) {
        tile[tid] = in[first + tid];
        __syncthreads();  // BUG: barrier
        out[first + tid] = take_path(tid % 2, tile[tid]);
    }
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
