// 16-bit floats with every modifier, single precision flushed in directed modes, packed integers: one row a PUT.
// Operands are words: a 16-bit instruction uses their lower half, a pair all of it, a float their bits.
typedef unsigned u32;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);
#define HALF1(text) ([&] { unsigned short d; asm volatile(text " %0, %1;" : "=h"(d) : "h"(a16)); return d; }())
#define HALF2(text) ([&] { unsigned short d; asm volatile(text " %0, %1, %2;" : "=h"(d) : "h"(a16), "h"(b16)); return d; }())
#define HALF3(text) \
    ([&] { unsigned short d; asm volatile(text " %0, %1, %2, %3;" : "=h"(d) : "h"(a16), "h"(b16), "h"(c16)); return d; }())
#define WORD2(text) ([&] { u32 d; asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }())
#define WORD3(text) ([&] { u32 d; asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }())
#define FLOAT2(text) ([&] { float d; asm volatile(text " %0, %1, %2;" : "=f"(d) : "f"(fa), "f"(fb)); return d; }())
#define FLOAT3(text) \
    ([&] { float d; asm volatile(text " %0, %1, %2, %3;" : "=f"(d) : "f"(fa), "f"(fb), "f"(fc)); return d; }())
#define FROM(text, T, constraint, value) \
    ([&] { T d; asm volatile(text " %0, %1;" : "=" constraint(d) : value); return d; }())
#define BEGIN                                                                                          \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;                                            \
    if (i >= n) return;                                                                                \
    u32 a = as[i], b = bs[i], c = cs[i];                                                               \
    unsigned short a16 = a, b16 = b, c16 = c;                                                          \
    float fa = __uint_as_float(a), fb = __uint_as_float(b), fc = __uint_as_float(c);                   \
    (void)a16, (void)b16, (void)c16, (void)fa, (void)fb, (void)fc;

extern "C" __global__ void halves(const u32 *as, const u32 *bs, const u32 *cs, u32 *out, int n) {
    BEGIN
    PUT(add_sat, HALF2("add.sat.f16"))
    PUT(sub_ftz, HALF2("sub.ftz.f16"))
    PUT(mul_ftz_sat, HALF2("mul.ftz.sat.f16"))
    PUT(fma_relu, HALF3("fma.rn.relu.f16"))
    PUT(fma_sat, HALF3("fma.rn.sat.f16"))
    PUT(fma_ftz, HALF3("fma.rn.ftz.f16"))
    PUT(min_nan, HALF2("min.NaN.f16"))
    PUT(max_xorsign, HALF2("max.xorsign.abs.f16"))
    PUT(add_bf16, HALF2("add.rn.bf16"))
    PUT(sub_bf16, HALF2("sub.rn.bf16"))
    PUT(mul_bf16, HALF2("mul.rn.bf16"))
    PUT(fma_bf16, HALF3("fma.rn.bf16"))
    PUT(fma_relu_bf16, HALF3("fma.rn.relu.bf16"))
    PUT(min_bf16, HALF2("min.bf16"))
    PUT(max_nan_bf16, HALF2("max.NaN.bf16"))
    PUT(neg_bf16, HALF1("neg.bf16"))
    PUT(abs_bf16, HALF1("abs.bf16"))
    PUT(pair_mul, WORD2("mul.f16x2"))
    PUT(pair_sub_sat, WORD2("sub.sat.f16x2"))
    PUT(pair_fma_bf16, WORD3("fma.rn.bf16x2"))
    PUT(pair_max_bf16, WORD2("max.bf16x2"))
    PUT(set_less, WORD2("set.lt.f16x2.f16x2"))
    PUT(set_mask, WORD2("set.neu.u32.f16x2"))
    PUT(set_bf16, ([&] { u32 d; asm volatile("set.ge.u32.bf16 %0, %1, %2;" : "=r"(d) : "h"(a16), "h"(b16)); return d; }()))
    PUT(set_u32, ([&] { u32 d; asm volatile("set.gtu.u32.f16 %0, %1, %2;" : "=r"(d) : "h"(a16), "h"(b16)); return d; }()))
    PUT(setp_bf16, ([&] {
            int d;
            asm volatile("{ .reg .pred p; setp.le.bf16 p, %1, %2; selp.s32 %0, 1, 0, p; }" : "=r"(d) : "h"(a16), "h"(b16));
            return d;
        }()))
}

extern "C" __global__ void half_conversions(const u32 *as, const u32 *bs, const u32 *cs, u32 *out, int n) {
    BEGIN
    double wide = (double)fa * (1 + 3e-9);
    long long whole = (long long)((unsigned long long)a << 32 | b) >> (c & 63);
    PUT(f16_relu, FROM("cvt.rn.relu.f16.f32", unsigned short, "h", "f"(fa)))
    PUT(f16_sat, FROM("cvt.rn.sat.f16.f32", unsigned short, "h", "f"(fa)))
    PUT(f16_rm_f64, FROM("cvt.rm.f16.f64", unsigned short, "h", "d"(wide)))
    PUT(f16_rni, HALF1("cvt.rni.f16.f16"))
    PUT(f16_rpi, HALF1("cvt.rpi.f16.f16"))
    PUT(f16_s64, FROM("cvt.rn.f16.s64", unsigned short, "h", "l"(whole)))
    PUT(f16_u8, FROM("cvt.rn.f16.u8", unsigned short, "h", "r"(a & 255)))
    PUT(bf16_rz, FROM("cvt.rz.bf16.f32", unsigned short, "h", "f"(fa)))
    PUT(bf16_relu, FROM("cvt.rn.relu.bf16.f32", unsigned short, "h", "f"(fa)))
    PUT(bf16_s32, FROM("cvt.rn.bf16.s32", unsigned short, "h", "r"(a)))
    PUT(bf16_rni, HALF1("cvt.rni.bf16.bf16"))
    PUT(pair_bf16, ([&] { u32 d; asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(fa), "f"(fb)); return d; }()))
    PUT(pair_relu, ([&] { u32 d; asm volatile("cvt.rz.relu.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(fa), "f"(fb)); return d; }()))
    PUT(s32_f16, FROM("cvt.rpi.s32.f16", int, "r", "h"(a16)))
    PUT(s64_f16, (FROM("cvt.rzi.s64.f16", long long, "l", "h"(a16)) >> 16))
    PUT(u8_f16, FROM("cvt.rzi.u8.f16", u32, "r", "h"(a16)))
    PUT(s32_bf16, FROM("cvt.rni.s32.bf16", int, "r", "h"(a16)))
    PUT(f64_f16, (__double_as_longlong(FROM("cvt.f64.f16", double, "d", "h"(a16))) >> 32))
    PUT(f32_ftz_f16, __float_as_uint(FROM("cvt.ftz.f32.f16", float, "f", "h"(a16))))
}

#undef PUT
#define PUT(name, value) out[row++ * n + i] = (value);
extern "C" __global__ void flushed(const u32 *as, const u32 *bs, const u32 *cs, float *out, int n) {
    BEGIN
    PUT(add_rm_ftz, FLOAT2("add.rm.ftz.f32"))
    PUT(mul_rz_ftz, FLOAT2("mul.rz.ftz.f32"))
    PUT(mul_rp_ftz, FLOAT2("mul.rp.ftz.f32"))
    PUT(fma_rp_ftz, FLOAT3("fma.rp.ftz.f32"))
    PUT(fma_rz_ftz_sat, FLOAT3("fma.rz.ftz.sat.f32"))
    PUT(div_rm_ftz, FLOAT2("div.rm.ftz.f32"))
    PUT(min_xorsign, FLOAT2("min.xorsign.abs.f32"))
    PUT(max_nan_xorsign, FLOAT2("max.NaN.xorsign.abs.f32"))
    PUT(slct_ftz, ([&] { float d; asm volatile("slct.ftz.f32.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(fa), "f"(fb), "f"(fc));
                         return d; }()))
}

extern "C" __global__ void packed(const u32 *as, const u32 *bs, const u32 *cs, u32 *out, int n) {
    BEGIN
    PUT(mad_hi_sat, WORD3("mad.hi.sat.s32"))
    PUT(vadd4, WORD3("vadd4.u32.u32.u32.sat"))
    PUT(vsub4, WORD3("vsub4.s32.s32.s32.sat"))
    PUT(vadd2, WORD3("vadd2.s32.u32.s32"))
    PUT(vabsdiff2, WORD3("vabsdiff2.u32.s32.s32.add"))
    PUT(vmin4, WORD3("vmin4.s32.s32.s32"))
    PUT(vmax2, WORD3("vmax2.u32.u32.u32.add"))
    PUT(add_pair, WORD2("add.s16x2"))
    PUT(max_pair, WORD2("max.u16x2"))
}
