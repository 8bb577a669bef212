// Step 3: coalesced loads and stores, too, through shared memory.
//
// The block copies its elements into a tile in order, so neighbouring lanes access neighbouring words. Each warp then
// works on the elements of its path, and the tile is written back in order. Reading every eighth word of the tile would
// put eight lanes into one bank; one word of padding after each 32 words spreads them out. With this much arithmetic
// per element there is no gain, and the barriers make the kernel slightly slower on a large GPU. Find out what limits a
// kernel before you improve it.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ unsigned padded(unsigned index)
{
    return index + index / 32;
}

template <unsigned WAYS>
__device__ void transform(const float *in, float *out, unsigned n)
{
    static_assert(BLOCK_SIZE / 32 % WAYS == 0, "a block must hold a warp for every path");
    __shared__ float tile[BLOCK_SIZE + BLOCK_SIZE / 32];
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;

    if (first + tid < n)
        tile[padded(tid)] = in[first + tid];
    __syncthreads();

    const unsigned which = tid / 32 % WAYS;
    const unsigned mine = (tid / (32 * WAYS) * 32 + tid % 32) * WAYS + which;
    if (first + mine < n)
        tile[padded(mine)] = take_path(which, tile[padded(mine)]);
    __syncthreads();

    if (first + tid < n)
        out[first + tid] = tile[padded(tid)];
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    transform<2>(in, out, n);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    transform<8>(in, out, n);
}
