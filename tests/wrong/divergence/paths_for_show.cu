// Wrong: each lane also takes a path and discards its result, so that most instructions have full warps.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float idle(float x, int times)
{
    for (int k = 0; k < times; ++k)
        x = path1(x);
    return x;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float unused = idle(1.0f + threadIdx.x, 8);
    if (i < n)
        out[i] = unused < 0 ? unused : take_path(i % 2, in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float unused = idle(1.0f + threadIdx.x, 8);
    if (i < n)
        out[i] = unused < 0 ? unused : take_path(i % 8, in[i]);
}
