// Half and bfloat16: conversions, and arithmetic as cuda_fp16.h compiles it. Results as 16-bit patterns.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define PUT(name, value) out[row++ * n + i] = (value);
#define BITS(value) __half_as_ushort(value)
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;

extern "C" __global__ void to_half(const float *as, unsigned short *out, int n) {
    BEGIN
    float a = as[i];
    PUT(float2half_rn, BITS(__float2half_rn(a)))
    PUT(float2half_rz, BITS(__float2half_rz(a)))
    PUT(float2half_rd, BITS(__float2half_rd(a)))
    PUT(float2half_ru, BITS(__float2half_ru(a)))
    PUT(double2half, BITS(__double2half((double)a * (1 + 1e-9))))
    PUT(int2half, BITS(__int2half_rn(__float_as_int(a) >> 8)))
    PUT(float2bfloat16, __bfloat16_as_ushort(__float2bfloat16(a)))
    PUT(pair_low, BITS(__low2half(__floats2half2_rn(a, -a))))
    PUT(pair_high, BITS(__high2half(__floats2half2_rn(a, 2 * a))))
}

extern "C" __global__ void from_half(const unsigned short *as, float *out, int n) {
    BEGIN
    __half a = __ushort_as_half(as[i]);
    PUT(half2float, __half2float(a))
    PUT(bfloat162float, __bfloat162float(__ushort_as_bfloat16(as[i])))
    PUT(half2int, (float)__half2int_rz(a))
    PUT(half2int_rn, (float)__half2int_rn(a))
    PUT(half2ushort, (float)__half2ushort_rz(a))
    PUT(through_double, (float)((double)__half2float(a) * 3))
}

extern "C" __global__ void half_arithmetic(const unsigned short *as, const unsigned short *bs, unsigned short *out, int n) {
    BEGIN
    __half a = __ushort_as_half(as[i]), b = __ushort_as_half(bs[i]), c = __ushort_as_half(bs[(i + 5) % n]);
    __half2 ab = __halves2half2(a, b), bc = __halves2half2(b, c);
    PUT(hadd, BITS(__hadd(a, b)))
    PUT(hsub, BITS(__hsub(a, b)))
    PUT(hmul, BITS(__hmul(a, b)))
    PUT(hfma, BITS(__hfma(a, b, c)))
    PUT(hdiv, BITS(__hdiv(a, b)))
    PUT(hneg, BITS(__hneg(a)))
    PUT(habs, BITS(__habs(a)))
    PUT(hmin, BITS(__hmin(a, b)))
    PUT(hmax, BITS(__hmax(a, b)))
    PUT(hlt, __hlt(a, b))
    PUT(hge, __hge(a, b))
    PUT(hequ, __hequ(a, b))
    PUT(hisnan, __hisnan(a))
    PUT(pair_add, BITS(__high2half(__hadd2(ab, bc))))
    PUT(pair_fma, BITS(__low2half(__hfma2(ab, bc, ab))))
}
