// Honest: asynchronous copies run ahead of the sum, into two buffers of which each thread reads its own element.
#include <gpulab.cuh>
#include <cuda_pipeline.h>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T buffers[2][BLOCK_SIZE];
    const unsigned t = threadIdx.x, first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + t;
    auto copy = [&](unsigned item) {
        if (item < ITEMS_PER_THREAD && first + item * BLOCK_SIZE < n)
            __pipeline_memcpy_async(&buffers[item % 2][t], in + first + item * BLOCK_SIZE, sizeof(GPULAB_T));
        __pipeline_commit();
    };
    GPULAB_T value = GPULAB_IDENTITY;
    copy(0);
    for (unsigned item = 0; item < ITEMS_PER_THREAD; ++item) {
        copy(item + 1);
        __pipeline_wait_prior(1);  // all but the latest
        if (first + item * BLOCK_SIZE < n)
            value = GPULAB_OP(value, buffers[item % 2][t]);
    }
    __pipeline_wait_prior(0);
    buffers[0][t] = value;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            buffers[0][t] = GPULAB_OP(buffers[0][t], buffers[0][t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = buffers[0][0];
}
