// Wrong: threads without an element to load return, although the block still meets at a barrier and needs their work.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

// The element of its path that a thread takes, counted within the block.
__device__ unsigned mine(unsigned tid)
{
    return (tid / 256 * 32 + tid % 32) * 8 + tid / 32 % 8;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 2, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    __shared__ float tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;
    if (first + tid >= n)
        return;

    tile[tid] = in[first + tid];
    __syncthreads();  // BUG: barrier
    if (first + mine(tid) < n)
        out[first + mine(tid)] = take_path(tid / 32 % 8, tile[mine(tid)]);
}
