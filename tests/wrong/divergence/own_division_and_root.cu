// Wrong: divergent as before. Approximations with one exact Newton step give the same bits faster than `/` and `sqrtf`.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float quotient(float a, float b)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fmaf(r, fmaf(-b, r, 1.0f), r);
    const float q = a * r;
    return fmaf(fmaf(-b, q, a), r, q);
}

__device__ float root(float x)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float g = x * r;
    return fmaf(fmaf(-g, g, x), 0.5f * r, g);
}

__device__ float even_path(float x)
{
#pragma unroll 8
    for (int k = 0; k < ROUNDS; ++k)
        x = quotient(x + 0.03125f, 1.0f + 0.0009765625f * x);
    return x;
}

__device__ float odd_path(float x)
{
#pragma unroll 8
    for (int k = 0; k < ROUNDS; ++k)
        x = root(x * (x + 0.25f));
    return x;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = i % 2 == 0 ? even_path(in[i]) : odd_path(in[i]);
}

// The eight paths are two formulas, with coefficients that depend on the lane.
__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x, which = i % 8;
    if (i >= n)
        return;
    float x = in[i];
    if (which == 1 || which == 4 || which == 5) {
        const float a = which == 1 ? 0.25f : which == 4 ? 1.0f : -0.00390625f;
#pragma unroll 8
        for (int k = 0; k < ROUNDS; ++k)
            x = root(x * (x + a));
    } else {
        const bool has_sum = which != 0 && which != 3;
        const float p = which == 0 ? 0.03125f : 0.0f, q = has_sum ? 1.0f : 0.0f;
        const float r = !has_sum ? 1.0f : which == 2 ? 64.0f : which == 6 ? 65.0f : 8.0f;
        const float s = !has_sum ? 1.0f : which == 2 ? 65.0f : which == 6 ? 64.0f : 8.125f;
        const float t = which == 0 ? 0.0009765625f : which == 3 ? 0.015625f : 1.0f;
#pragma unroll 8
        for (int k = 0; k < ROUNDS; ++k)
            x = quotient((x + p) * fmaf(q, x, r), fmaf(t, x, s));
    }
    out[i] = x;
}
