// Wrong: processes whole groups of 64 elements and drops the tail.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = blockIdx.x * (BLOCK_SIZE / 32) + threadIdx.x / 32;
    const unsigned i = warp / 2 * 64 + lane * 2 + warp % 2;
    if (i < n / 64 * 64)
        out[i] = take_path(warp % 2, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
