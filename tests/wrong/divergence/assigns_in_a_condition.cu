// Wrong: the condition assigns instead of comparing.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    if (i = 0)
        out[i] = path0(in[i]);
    else
        out[i] = path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
