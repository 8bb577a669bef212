// Wrong: `square_root` in paths.cuh becomes a macro that computes both paths, and selects one of them by the lane.
#include <gpulab.cuh>

#define square_root(v) both(v, x)
#define both(v, x)                                                                                               \
    ([&]() {                                                                                                     \
        float a = (v), b = fmaf(0.0009765625f, x, 1.0f), c = x + 0.03125f, r, s, q;                              \
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));                                                  \
        q = a * r;                                                                                               \
        s = fmaf(fmaf(-q, q, a), 0.5f * r, q);                                                                   \
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));                                                    \
        r = fmaf(r, fmaf(-b, r, 1.0f), r);                                                                       \
        q = c * r;                                                                                               \
        q = fmaf(fmaf(-b, q, c), r, q);                                                                          \
        asm("{.reg .pred p; setp.ne.u32 p, %3, 0; selp.f32 %0, %1, %2, p;}"                                      \
            : "=f"(r) : "f"(s), "f"(q), "r"(threadIdx.x % 2));                                                   \
        return r;                                                                                                \
    }())
#include "paths.cuh"
#undef square_root

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
