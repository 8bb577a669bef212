// Step 2: the same for eight paths.
//
// This step trades one cost for another. Eight warps share 256 elements, one path each. The lanes of a warp now read
// every eighth element, so a warp accesses eight times as many sectors as before. It hardly matters here: 64 rounds of
// arithmetic cost far more than a load.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

// The element that this thread takes: 32 * WAYS elements to WAYS warps, each warp with elements of one path only.
template <unsigned WAYS>
__device__ unsigned element_of_path(unsigned &which)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = blockIdx.x * (BLOCK_SIZE / 32) + threadIdx.x / 32;
    static_assert(BLOCK_SIZE / 32 % WAYS == 0, "a block must hold a warp for every path, or groups would cross blocks");
    which = warp % WAYS;
    return (warp / WAYS * 32 + lane) * WAYS + which;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned which;
    const unsigned i = element_of_path<2>(which);
    if (i < n)
        out[i] = which == 0 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    unsigned which;
    const unsigned i = element_of_path<8>(which);
    if (i < n)
        out[i] = take_path(which, in[i]);
}
