// Wrong: regroups the elements by warp, but chooses the path by lane.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 2, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = blockIdx.x * (BLOCK_SIZE / 32) + threadIdx.x / 32;
    const unsigned i = (warp / 8 * 32 + lane) * 8 + warp % 8;
    if (i < n)
        out[i] = take_path(lane % 8, in[i]);
}
