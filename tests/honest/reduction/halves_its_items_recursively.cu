// Honest: each thread halves its items by recursion, then its warp's values, and the block's, by shuffles.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)

__device__ GPULAB_T combined(const GPULAB_T *in, unsigned first, unsigned count, unsigned n)
{
    if (first >= n)
        return GPULAB_IDENTITY;
    if (count == 1)
        return in[first];
    const unsigned half = count / 2;
    const GPULAB_T left = combined(in, first, half, n);
    return GPULAB_OP(left, combined(in, first + half, count - half, n));
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[BLOCK_SIZE / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    GPULAB_T value =
        combined(in, (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD, ITEMS_PER_THREAD, n);
    for (unsigned distance = 16; distance > 0; distance /= 2)
        value = GPULAB_OP(value, __shfl_down_sync(~0u, value, distance));
    if (lane == 0)
        of_warp[warp] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned k = 1; k < BLOCK_SIZE / 32; ++k)
            value = GPULAB_OP(value, of_warp[k]);
        out[blockIdx.x] = value;
    }
}
