// Wrong: reads by the thread's number alone, so every block works on the first block's elements.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = i % 2 == 0 ? path0(in[threadIdx.x]) : path1(in[threadIdx.x]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
