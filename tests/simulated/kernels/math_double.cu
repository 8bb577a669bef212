// The math library in double precision. One row of `out` for each PUT; the bounds are in truth_bounds.py.
#define PUT(name, value) out[row++ * n + i] = (value);
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;                                         \
    double x = xs[i], y = ys[i];

extern "C" __global__ void double_exact(const double *xs, const double *ys, double *out, int n) {
    BEGIN
    int exponent;
    PUT(divide, x / y)
    PUT(sqrt, sqrt(x))
    PUT(fma, fma(x, y, 1.0))
    PUT(fmod, fmod(x, y))
    PUT(remainder, remainder(x, y))
    PUT(frexp, frexp(x, &exponent))
    PUT(ldexp, ldexp(x, (int)(y * 4) % 2000))
    PUT(nextafter, nextafter(x, y))
    PUT(fmin, fmin(x, y))
    PUT(fmax, fmax(x, y))
    PUT(rint, rint(x))
    PUT(round, round(x))
    PUT(dadd_rd, __dadd_rd(x, y))
    PUT(dmul_rz, __dmul_rz(x, y))
    PUT(drcp_rn, __drcp_rn(x))
}

extern "C" __global__ void double_library(const double *xs, const double *ys, double *out, int n) {
    BEGIN
    PUT(sin, sin(x))
    PUT(cos, cos(x))
    PUT(tan, tan(x))
    PUT(sinpi, sinpi(x))
    PUT(asin, asin(x))
    PUT(acos, acos(x))
    PUT(atan, atan(x))
    PUT(atan2, atan2(x, y))
    PUT(sinh, sinh(x))
    PUT(cosh, cosh(x))
    PUT(tanh, tanh(x))
    PUT(asinh, asinh(x))
    PUT(acosh, acosh(x))
    PUT(atanh, atanh(x))
    PUT(exp, exp(x))
    PUT(exp2, exp2(x))
    PUT(exp10, exp10(x))
    PUT(expm1, expm1(x))
    PUT(log, log(x))
    PUT(log2, log2(x))
    PUT(log10, log10(x))
    PUT(log1p, log1p(x))
    PUT(pow, pow(x, y))
    PUT(rsqrt, rsqrt(x))
    PUT(cbrt, cbrt(x))
    PUT(hypot, hypot(x, y))
    PUT(erf, erf(x))
    PUT(erfc, erfc(x))
    PUT(tgamma, tgamma(x))
    PUT(lgamma, lgamma(x))
}
