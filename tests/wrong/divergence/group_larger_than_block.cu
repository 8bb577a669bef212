// Wrong: needs two warps per block for the two paths, but has one; no thread takes the odd elements.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 32)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned which = threadIdx.x / 32 % 2;
    const unsigned i = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * 2 + which;
    if (i < n)
        out[i] = take_path(which, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
