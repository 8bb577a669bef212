// Wrong: The loop fills one element more than the thread has.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, first = (blockIdx.x * BLOCK_SIZE + t) * ITEMS_PER_THREAD;
    GPULAB_T mine[ITEMS_PER_THREAD];
    unsigned count = 0;
    for (unsigned k = 0; k <= ITEMS_PER_THREAD && first + k < n; ++k)
        mine[count++] = in[first + k];  // BUG: memory
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < count; ++k)
        value = GPULAB_OP(value, mine[k]);
    tile[t] = value;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (t < stride)
            tile[t] = GPULAB_OP(tile[t], tile[t + stride]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
