// Wrong: declares two elements per thread and takes one.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 2, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    for (unsigned i = first; i < n && i < first + 2 * BLOCK_SIZE; i += BLOCK_SIZE)
        out[i] = take_path(i % 8, in[i]);
}
