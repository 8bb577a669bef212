// Wrong: the first half of a block takes one path, the second half the other, whatever their elements.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    out[i] = threadIdx.x < BLOCK_SIZE / 2 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
