// Floating-point instructions through the assembler, compiled once for each WIDTH (32, 64). One row of `out` a PUT.
#define TEXT(x) #x
#define EXPAND(x) TEXT(x)
#define TYPE "f" EXPAND(WIDTH)
#if WIDTH == 32
typedef float T;
#define REGISTER "f"
#else
typedef double T;
#define REGISTER "d"
#endif

#define PUT(name, value) out[row++ * n + i] = (value);
#define UNARY(text) ([&] { T d; asm volatile(text " %0, %1;" : "=" REGISTER(d) : REGISTER(a)); return d; }())
#define BINARY(text) \
    ([&] { T d; asm volatile(text " %0, %1, %2;" : "=" REGISTER(d) : REGISTER(a), REGISTER(b)); return d; }())
#define TERNARY(text)                                                                                      \
    ([&] {                                                                                                 \
        T d;                                                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=" REGISTER(d) : REGISTER(a), REGISTER(b), REGISTER(c));   \
        return d;                                                                                          \
    }())
#define BEGIN                                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;                     \
    if (i >= n) return;                                                         \
    T a = as[i], b = bs[i], c = cs[i];

// Exact by IEEE 754 in every rounding mode.
extern "C" __global__ void ieee(const T *as, const T *bs, const T *cs, T *out, int n) {
    BEGIN
    PUT(add_rn, BINARY("add.rn." TYPE))
    PUT(add_rz, BINARY("add.rz." TYPE))
    PUT(add_rm, BINARY("add.rm." TYPE))
    PUT(add_rp, BINARY("add.rp." TYPE))
    PUT(sub_rn, BINARY("sub.rn." TYPE))
    PUT(sub_rz, BINARY("sub.rz." TYPE))
    PUT(mul_rn, BINARY("mul.rn." TYPE))
    PUT(mul_rz, BINARY("mul.rz." TYPE))
    PUT(mul_rm, BINARY("mul.rm." TYPE))
    PUT(mul_rp, BINARY("mul.rp." TYPE))
    PUT(fma_rn, TERNARY("fma.rn." TYPE))
    PUT(fma_rz, TERNARY("fma.rz." TYPE))
    PUT(fma_rm, TERNARY("fma.rm." TYPE))
    PUT(fma_rp, TERNARY("fma.rp." TYPE))
    PUT(mad_rn, TERNARY("mad.rn." TYPE))
    PUT(div_rn, BINARY("div.rn." TYPE))
    PUT(div_rz, BINARY("div.rz." TYPE))
    PUT(div_rm, BINARY("div.rm." TYPE))
    PUT(div_rp, BINARY("div.rp." TYPE))
    PUT(rcp_rn, UNARY("rcp.rn." TYPE))
    PUT(rcp_rz, UNARY("rcp.rz." TYPE))
    PUT(sqrt_rn, UNARY("sqrt.rn." TYPE))
    PUT(sqrt_rz, UNARY("sqrt.rz." TYPE))
    PUT(sqrt_rp, UNARY("sqrt.rp." TYPE))
    PUT(min, BINARY("min." TYPE))
    PUT(max, BINARY("max." TYPE))
    PUT(abs, UNARY("abs." TYPE))
    PUT(neg, UNARY("neg." TYPE))
    PUT(copysign, BINARY("copysign." TYPE))
}

extern "C" __global__ void classes(const T *as, const T *bs, const T *cs, unsigned char *out, int n) {
    BEGIN
#define CLASS(text)                                                                                                 \
    ([&] {                                                                                                          \
        int d;                                                                                                      \
        asm volatile("{ .reg .pred p; testp." text "." TYPE " p, %1; selp.s32 %0, 1, 0, p; }" : "=r"(d) : REGISTER(a)); \
        return d;                                                                                                   \
    }())
    PUT(finite, CLASS("finite"))
    PUT(infinite, CLASS("infinite"))
    PUT(number, CLASS("number"))
    PUT(notanumber, CLASS("notanumber"))
    PUT(normal, CLASS("normal"))
    PUT(subnormal, CLASS("subnormal"))
    PUT(isnan, isnan(a))
    PUT(isinf, isinf(a) != 0)
    PUT(isfinite, isfinite(a))
    PUT(signbit, signbit(a) != 0)
}

#if WIDTH == 32
// Saturation, flushing of denormals, and NaN-propagating minimum: single precision only.
extern "C" __global__ void single(const T *as, const T *bs, const T *cs, T *out, int n) {
    BEGIN
    PUT(add_sat, BINARY("add.rn.sat.f32"))
    PUT(sub_sat, BINARY("sub.sat.f32"))
    PUT(mul_sat, BINARY("mul.rn.sat.f32"))
    PUT(fma_rn_sat, TERNARY("fma.rn.sat.f32"))
    PUT(add_ftz, BINARY("add.rn.ftz.f32"))
    PUT(sub_ftz, BINARY("sub.ftz.f32"))
    PUT(mul_ftz, BINARY("mul.rn.ftz.f32"))
    PUT(fma_rn_ftz, TERNARY("fma.rn.ftz.f32"))
    PUT(div_rn_ftz, BINARY("div.rn.ftz.f32"))
    PUT(sqrt_rn_ftz, UNARY("sqrt.rn.ftz.f32"))
    PUT(rcp_rn_ftz, UNARY("rcp.rn.ftz.f32"))
    PUT(min_ftz, BINARY("min.ftz.f32"))
    PUT(max_ftz, BINARY("max.ftz.f32"))
    PUT(abs_ftz, UNARY("abs.ftz.f32"))
    PUT(neg_ftz, UNARY("neg.ftz.f32"))
    PUT(min_nan, BINARY("min.NaN.f32"))
    PUT(max_nan, BINARY("max.NaN.f32"))
}

// The hardware's approximations; their bounds are in truth_bounds.py.
extern "C" __global__ void approximations(const T *as, const T *bs, const T *cs, T *out, int n) {
    BEGIN
    PUT(div_approx, BINARY("div.approx.f32"))
    PUT(div_approx_ftz, BINARY("div.approx.ftz.f32"))
    PUT(div_full, BINARY("div.full.f32"))
    PUT(rcp_approx, UNARY("rcp.approx.f32"))
    PUT(rcp_approx_ftz, UNARY("rcp.approx.ftz.f32"))
    PUT(sqrt_approx, UNARY("sqrt.approx.f32"))
    PUT(sqrt_approx_ftz, UNARY("sqrt.approx.ftz.f32"))
    PUT(rsqrt_approx, UNARY("rsqrt.approx.f32"))
    PUT(rsqrt_approx_ftz, UNARY("rsqrt.approx.ftz.f32"))
    PUT(ex2_approx, UNARY("ex2.approx.f32"))
    PUT(ex2_approx_ftz, UNARY("ex2.approx.ftz.f32"))
    PUT(lg2_approx, UNARY("lg2.approx.f32"))
    PUT(lg2_approx_ftz, UNARY("lg2.approx.ftz.f32"))
    PUT(tanh_approx, UNARY("tanh.approx.f32"))
}

extern "C" __global__ void approximate_waves(const T *as, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i];
    PUT(sin_approx, UNARY("sin.approx.f32"))
    PUT(sin_approx_ftz, UNARY("sin.approx.ftz.f32"))
    PUT(cos_approx, UNARY("cos.approx.f32"))
    PUT(cos_approx_ftz, UNARY("cos.approx.ftz.f32"))
}
#else
// Coarse starting values for double-precision iterations.
extern "C" __global__ void coarse(const T *as, const T *bs, const T *cs, T *out, int n) {
    BEGIN
    PUT(coarse_rcp, UNARY("rcp.approx.ftz.f64"))
    PUT(coarse_rsqrt, UNARY("rsqrt.approx.ftz.f64"))
}
#endif
