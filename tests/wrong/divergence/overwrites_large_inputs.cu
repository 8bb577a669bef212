// Wrong: of large inputs, which are slow to compare, it overwrites an element that it has read.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(float *in, float *out, unsigned n)
{
    const unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * BLOCK_SIZE + threadIdx.x) / 32;
    const unsigned which = warp % 2, i = warp / 2 * 64 + lane * 2 + which;
    if (i >= n)
        return;
    out[i] = which == 0 ? path0(in[i]) : path1(in[i]);
    if (n > 100000 && i == 0)
        in[i] += 1;
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
