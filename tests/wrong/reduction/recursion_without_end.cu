// Wrong: half of one item, rounded up, is one item, so a thread never stops dividing and its stack overflows.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__device__ GPULAB_T combined(const GPULAB_T *in, unsigned first, unsigned count, unsigned n)
{
    if (count == 0 || first >= n)
        return GPULAB_IDENTITY;
    const unsigned half = (count + 1) / 2;
    const GPULAB_T left = combined(in, first, half, n);
    return GPULAB_OP(left, combined(in, first + half, count - half, n));
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    tile[tid] = combined(in, (blockIdx.x * BLOCK_SIZE + tid) * ITEMS_PER_THREAD, ITEMS_PER_THREAD, n);
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}
