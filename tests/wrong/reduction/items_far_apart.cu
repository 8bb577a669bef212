// Wrong: a thread's elements are neighbours, and the next thread's begin BLOCK_SIZE elements later.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

constexpr unsigned WARPS = BLOCK_SIZE / 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// All 32 lanes must call this; lane 0 gets the result.
__device__ GPULAB_T reduce_warp(GPULAB_T value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const GPULAB_T other = __shfl_down_sync(ALL_LANES, value, offset);
        value = GPULAB_OP(value, other);
    }
    return value;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[WARPS];
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD;

    GPULAB_T value = GPULAB_IDENTITY;
#pragma unroll
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k) {
        const unsigned i = first + tid * BLOCK_SIZE + k;
        if (i < n)
            value = GPULAB_OP(value, in[i]);
    }

    value = reduce_warp(value);
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;
    __syncthreads();
    if (tid < 32) {
        value = reduce_warp(tid < WARPS ? of_warp[tid] : GPULAB_IDENTITY);
        if (tid == 0)
            out[blockIdx.x] = value;
    }
}
