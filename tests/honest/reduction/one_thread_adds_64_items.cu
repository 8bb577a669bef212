// Honest: 64 items per thread one after the other, then one thread adds the threads' values in order.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 64)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 64)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_thread[BLOCK_SIZE];
    unsigned first = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned i = first; i < first + ITEMS_PER_THREAD && i < n; ++i)
        value = GPULAB_OP(value, in[i]);
    of_thread[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned k = 1; k < BLOCK_SIZE; ++k)
            value = GPULAB_OP(value, of_thread[k]);
        out[blockIdx.x] = value;
    }
}
