// Wrong: writes path 0 anew and stops one round too early.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    if (i % 2 == 0) {
        for (int k = 1; k < ROUNDS; ++k)
            x = x + 0.25f / (1.0f + x);
        out[i] = x;
    } else {
        out[i] = path1(x);
    }
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
