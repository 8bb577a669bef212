// Step 1: two-way, one warp for the even elements and one warp for the odd ones.
//
// The lanes of a warp share one instruction stream. If even and odd lanes take different paths, the warp executes both
// paths one after the other, each with half of its lanes. Here two warps share 64 elements: the first takes the even
// ones, the second the odd ones. The work per thread is unchanged; only the assignment of elements to threads differs.
// The eight-way kernel is still in order.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = blockIdx.x * (BLOCK_SIZE / 32) + threadIdx.x / 32;
    const unsigned which = warp % 2;
    const unsigned i = warp / 2 * 64 + lane * 2 + which;
    if (i < n)
        out[i] = which == 0 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
