// Wrong: the right half leaves out its first item; a range of no item is divided for ever, so the stack overflows.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__device__ GPULAB_T combined(const GPULAB_T *in, unsigned first, unsigned last, unsigned n)
{
    if (last - first == 1)
        return first < n ? in[first] : GPULAB_IDENTITY;
    const unsigned middle = (first + last) / 2;
    const GPULAB_T left = combined(in, first, middle, n);
    return GPULAB_OP(left, combined(in, middle + 1, last, n));
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned first = (blockIdx.x * BLOCK_SIZE + tid) * ITEMS_PER_THREAD;
    tile[tid] = combined(in, first, first + ITEMS_PER_THREAD, n);
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}
