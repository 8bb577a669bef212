// Comparisons, selections and predicate logic, compiled once for each type: KIND (s, u, b, f) and WIDTH.
#define TEXT(x) #x
#define EXPAND(x) TEXT(x)
#define TYPE EXPAND(KIND) EXPAND(WIDTH)
#define s 1
#define u 2
#define b 3
#define f 4
#if KIND == 4
#define FLOATING 1
#elif KIND == 3
#define BITS_ONLY 1
#elif KIND == 2
#define UNSIGNED 1
#endif
#undef s
#undef u
#undef b
#undef f
#ifdef FLOATING
#if WIDTH == 32
typedef float T;
#define REGISTER "f"
#else
typedef double T;
#define REGISTER "d"
#endif
#elif WIDTH == 16
typedef unsigned short T;
#define REGISTER "h"
#elif WIDTH == 32
typedef unsigned T;
#define REGISTER "r"
#else
typedef unsigned long long T;
#define REGISTER "l"
#endif

#define PUT(name, value) out[row++ * n + i] = (value);
#define SETP(comparison)                                                                                          \
    ([&] {                                                                                                        \
        int d;                                                                                                    \
        asm volatile("{ .reg .pred p; setp." comparison "." TYPE " p, %1, %2; selp.s32 %0, 1, 0, p; }"            \
                     : "=r"(d) : REGISTER(x), REGISTER(y));                                                       \
        return d;                                                                                                 \
    }())
// setp with a second predicate operand and, where the type has it, the complement as a second result.
#define SETP2(comparison, logic)                                                                                  \
    ([&] {                                                                                                        \
        int d, e;                                                                                                 \
        asm volatile("{ .reg .pred p, q, r; setp.ne.s32 r, %4, 0; setp." comparison "." logic "." TYPE            \
                     " p|q, %2, %3, r; selp.s32 %0, 1, 0, p; selp.s32 %1, 1, 0, q; }"                             \
                     : "=r"(d), "=r"(e) : REGISTER(x), REGISTER(y), "r"(i % 3));                                  \
        return d + 2 * e;                                                                                         \
    }())
#define SETP_NOT(comparison, logic)                                                                               \
    ([&] {                                                                                                        \
        int d;                                                                                                    \
        asm volatile("{ .reg .pred p, r; setp.ne.s32 r, %3, 0; setp." comparison "." logic "." TYPE               \
                     " p, %1, %2, !r; selp.s32 %0, 1, 0, p; }"                                                    \
                     : "=r"(d) : REGISTER(x), REGISTER(y), "r"(i % 3));                                           \
        return d;                                                                                                 \
    }())

extern "C" __global__ void setp(const T *xs, const T *ys, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    PUT(eq, SETP("eq"))
    PUT(ne, SETP("ne"))
    PUT(eq_and, SETP2("eq", "and"))
    PUT(ne_xor, SETP2("ne", "xor"))
    PUT(eq_or_not, SETP_NOT("eq", "or"))
}

#ifndef BITS_ONLY
extern "C" __global__ void setp_ordered(const T *xs, const T *ys, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    PUT(lt, SETP("lt"))
    PUT(le, SETP("le"))
    PUT(gt, SETP("gt"))
    PUT(ge, SETP("ge"))
    PUT(lt_and, SETP2("lt", "and"))
    PUT(ge_or, SETP2("ge", "or"))
    PUT(gt_xor_not, SETP_NOT("gt", "xor"))
}
#endif

#ifdef UNSIGNED
extern "C" __global__ void setp_unsigned(const T *xs, const T *ys, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    PUT(lo, SETP("lo"))
    PUT(ls, SETP("ls"))
    PUT(hi, SETP("hi"))
    PUT(hs, SETP("hs"))
}
#endif

#ifdef FLOATING
extern "C" __global__ void setp_unordered(const T *xs, const T *ys, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    PUT(equ, SETP("equ"))
    PUT(neu, SETP("neu"))
    PUT(ltu, SETP("ltu"))
    PUT(leu, SETP("leu"))
    PUT(gtu, SETP("gtu"))
    PUT(geu, SETP("geu"))
    PUT(num, SETP("num"))
    PUT(nan, SETP("nan"))
}
#endif

#if defined(FLOATING) && WIDTH == 32
extern "C" __global__ void setp_flushed(const T *xs, const T *ys, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    PUT(eq_ftz, SETP("eq.ftz"))
    PUT(ltu_ftz, SETP("ltu.ftz"))
}
#endif

// selp, slct and set put one of two values, or all ones, or 1.0, into a register.
extern "C" __global__ void selections(const T *xs, const T *ys, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i], d;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; selp." TYPE " %0, %1, %2, p; }"
                 : "=" REGISTER(d) : REGISTER(x), REGISTER(y), "r"(i % 3));
    PUT(selp, d)
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; @p mov.b" EXPAND(WIDTH) " %0, %1; @!p mov.b" EXPAND(WIDTH) " %0, %2; }"
                 : "=" REGISTER(d) : REGISTER(x), REGISTER(y), "r"(i % 3));
    PUT(predicated_mov, d)
    asm volatile("slct." TYPE ".s32 %0, %1, %2, %3;" : "=" REGISTER(d) : REGISTER(x), REGISTER(y), "r"(i % 5 - 2));
    PUT(slct_s32, d)
    float sign = i % 4 == 0 ? -0.0f : i % 4 == 1 ? -1.0f : i % 4 == 2 ? 1.0f : nanf("");
    asm volatile("slct." TYPE ".f32 %0, %1, %2, %3;" : "=" REGISTER(d) : REGISTER(x), REGISTER(y), "f"(sign));
    PUT(slct_f32, d)
}

#ifndef BITS_ONLY
extern "C" __global__ void set_values(const T *xs, const T *ys, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T x = xs[i], y = ys[i];
    unsigned d;
    float one;
    asm volatile("set.lt.u32." TYPE " %0, %1, %2;" : "=r"(d) : REGISTER(x), REGISTER(y));
    PUT(set_u32, d)
    asm volatile("set.ge.f32." TYPE " %0, %1, %2;" : "=f"(one) : REGISTER(x), REGISTER(y));
    PUT(set_f32, __float_as_uint(one))
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; set.eq.xor.s32." TYPE " %0, %1, %2, p; }"
                 : "=r"(d) : REGISTER(x), REGISTER(y), "r"(i % 3));
    PUT(set_xor, d)
}
#endif
