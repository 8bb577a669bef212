// The math library in single precision. One row of `out` for each PUT; the bounds are in truth_bounds.py.
#define PUT(name, value) out[row++ * n + i] = (value);
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;                                         \
    float x = xs[i], y = ys[i];

extern "C" __global__ void single_exact(const float *xs, const float *ys, float *out, int n) {
    BEGIN
    int exponent, quotient;
    float whole;
    PUT(divide, x / y)
    PUT(sqrtf, sqrtf(x))
    PUT(fmaf, fmaf(x, y, 1.0f))
    PUT(contracted, x * y + x)
    PUT(not_contracted, __fadd_rn(__fmul_rn(x, y), x))
    PUT(fmodf, fmodf(x, y))
    PUT(remainderf, remainderf(x, y))
    PUT(remquof, remquof(x, y, &quotient))
    PUT(quotient, (float)(quotient & 7))
    PUT(modff, modff(x, &whole))
    PUT(whole, whole)
    PUT(frexpf, frexpf(x, &exponent))
    PUT(exponent, isfinite(x) ? (float)exponent : 0)
    PUT(ldexpf, ldexpf(x, (int)(y * 4) % 300))
    PUT(logbf, logbf(x))
    PUT(ilogbf, (float)ilogbf(x))
    PUT(nextafterf, nextafterf(x, y))
    PUT(fdimf, fdimf(x, y))
    PUT(fminf, fminf(x, y))
    PUT(fmaxf, fmaxf(x, y))
    PUT(fabsf, fabsf(x))
    PUT(copysignf, copysignf(x, y))
    PUT(nearbyintf, nearbyintf(x))
    PUT(roundf, roundf(x))
    PUT(fadd_rz, __fadd_rz(x, y))
    PUT(fmul_ru, __fmul_ru(x, y))
    PUT(fmaf_rd, __fmaf_rd(x, y, x))
    PUT(fdiv_rn, __fdiv_rn(x, y))
    PUT(fsqrt_rd, __fsqrt_rd(x))
    PUT(frcp_rn, __frcp_rn(x))
}

extern "C" __global__ void single_library(const float *xs, const float *ys, float *out, int n) {
    BEGIN
    float sine, cosine;
    PUT(sinf, sinf(x))
    PUT(cosf, cosf(x))
    PUT(tanf, tanf(x))
    sincosf(y, &sine, &cosine);
    PUT(sincosf_sine, sine)
    PUT(sincosf_cosine, cosine)
    PUT(sinpif, sinpif(x))
    PUT(cospif, cospif(x))
    PUT(asinf, asinf(x))
    PUT(acosf, acosf(x))
    PUT(atanf, atanf(x))
    PUT(atan2f, atan2f(x, y))
    PUT(sinhf, sinhf(x))
    PUT(coshf, coshf(x))
    PUT(tanhf, tanhf(x))
    PUT(asinhf, asinhf(x))
    PUT(acoshf, acoshf(x))
    PUT(atanhf, atanhf(x))
    PUT(expf, expf(x))
    PUT(exp2f, exp2f(x))
    PUT(exp10f, exp10f(x))
    PUT(expm1f, expm1f(x))
    PUT(logf, logf(x))
    PUT(log2f, log2f(x))
    PUT(log10f, log10f(x))
    PUT(log1pf, log1pf(x))
    PUT(powf, powf(x, y))
    PUT(rsqrtf, rsqrtf(x))
    PUT(cbrtf, cbrtf(x))
    PUT(rcbrtf, rcbrtf(x))
    PUT(hypotf, hypotf(x, y))
    PUT(erff, erff(x))
    PUT(erfcf, erfcf(x))
    PUT(erfinvf, erfinvf(x))
    PUT(normcdff, normcdff(x))
    PUT(tgammaf, tgammaf(x))
    PUT(lgammaf, lgammaf(x))
    PUT(norm3df, norm3df(x, y, 1.0f))
    PUT(j0f, j0f(x))
}

// The intrinsics; inputs within the interval for which CUDA states an error.
extern "C" __global__ void single_intrinsics(const float *xs, const float *ys, float *out, int n) {
    BEGIN
    PUT(fast_sinf, __sinf(x))
    PUT(fast_cosf, __cosf(x))
    PUT(fast_tanf, __tanf(x))
    PUT(fast_expf, __expf(x))
    PUT(fast_exp10f, __exp10f(x))
    PUT(fast_logf, __logf(y))
    PUT(fast_log2f, __log2f(y))
    PUT(fast_log10f, __log10f(y))
    PUT(fast_powf, __powf(y, x))
    PUT(fast_fdividef, __fdividef(x, y))
    PUT(fast_rsqrtf, __frsqrt_rn(y))
}
