// Wrong: the two-way paths with the fast division and root that --use_fast_math makes.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float fast_root(float x)
{
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    for (int k = 0; k < ROUNDS; ++k)
        x = i % 2 == 0 ? __fdividef(x + 0.03125f, 1.0f + 0.0009765625f * x) : fast_root(x * (x + 0.25f));
    out[i] = x;
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
