// cvt from every type to every other, with every rounding mode and saturation that exists. One row of `out` a PUT.
// WIDTH (32, 64) is the source's of float_to_integer.
#define PUT(name, value) out[row++ * n + i] = (value);
// asm has no 8-bit registers: 8-bit results and operands live in 32-bit ones, as the compiler's own do.
#define CVT(text, D, d_register, a_register) \
    ([&] { D d; asm volatile("cvt." text " %0, %1;" : "=" d_register(d) : a_register(a)); return (Out)d; }())
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;

#if WIDTH == 32
typedef float From;
#define FROM_TYPE "f32"
#define FROM_REGISTER "f"
#else
typedef double From;
#define FROM_TYPE "f64"
#define FROM_REGISTER "d"
#endif

extern "C" __global__ void float_to_integer(const From *as, long long *out, int n) {
    typedef long long Out;
    BEGIN
    From a = as[i];
    PUT(rni_s32, CVT("rni.s32." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rzi_s32, CVT("rzi.s32." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rmi_s32, CVT("rmi.s32." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rpi_s32, CVT("rpi.s32." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rni_u32, CVT("rni.u32." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rzi_u32, CVT("rzi.u32." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rmi_u32, CVT("rmi.u32." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rpi_u32, CVT("rpi.u32." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rni_s64, CVT("rni.s64." FROM_TYPE, long long, "l", FROM_REGISTER))
    PUT(rzi_s64, CVT("rzi.s64." FROM_TYPE, long long, "l", FROM_REGISTER))
    PUT(rmi_s64, CVT("rmi.s64." FROM_TYPE, long long, "l", FROM_REGISTER))
    PUT(rpi_s64, CVT("rpi.s64." FROM_TYPE, long long, "l", FROM_REGISTER))
    PUT(rni_u64, CVT("rni.u64." FROM_TYPE, unsigned long long, "l", FROM_REGISTER))
    PUT(rzi_u64, CVT("rzi.u64." FROM_TYPE, unsigned long long, "l", FROM_REGISTER))
    PUT(rzi_s16, CVT("rzi.s16." FROM_TYPE, short, "h", FROM_REGISTER))
    PUT(rzi_u16, CVT("rzi.u16." FROM_TYPE, unsigned short, "h", FROM_REGISTER))
    PUT(rzi_s8, CVT("rzi.s8." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rzi_u8, CVT("rzi.u8." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rni_sat_s8, CVT("rni.sat.s8." FROM_TYPE, int, "r", FROM_REGISTER))
    PUT(rni_sat_u8, CVT("rni.sat.u8." FROM_TYPE, unsigned, "r", FROM_REGISTER))
    PUT(rzi_sat_u16, CVT("rzi.sat.u16." FROM_TYPE, unsigned short, "h", FROM_REGISTER))
}

extern "C" __global__ void float32_to_float32(const float *as, float *out, int n) {
    typedef float Out;
    BEGIN
    float a = as[i];
    PUT(rni, CVT("rni.f32.f32", float, "f", "f"))
    PUT(rzi, CVT("rzi.f32.f32", float, "f", "f"))
    PUT(rmi, CVT("rmi.f32.f32", float, "f", "f"))
    PUT(rpi, CVT("rpi.f32.f32", float, "f", "f"))
    PUT(sat, CVT("sat.f32.f32", float, "f", "f"))
    PUT(ftz, CVT("ftz.f32.f32", float, "f", "f"))
    PUT(rni_ftz, CVT("rni.ftz.f32.f32", float, "f", "f"))
    PUT(rpi_sat, CVT("rpi.sat.f32.f32", float, "f", "f"))
    PUT(saturatef, __saturatef(a))
}

extern "C" __global__ void to_float64(const double *as, double *out, int n) {
    typedef double Out;
    BEGIN
    PUT(rni, ([&] { double d, a = as[i]; asm volatile("cvt.rni.f64.f64 %0, %1;" : "=d"(d) : "d"(a)); return d; }()))
    PUT(rzi, ([&] { double d, a = as[i]; asm volatile("cvt.rzi.f64.f64 %0, %1;" : "=d"(d) : "d"(a)); return d; }()))
    PUT(rmi, ([&] { double d, a = as[i]; asm volatile("cvt.rmi.f64.f64 %0, %1;" : "=d"(d) : "d"(a)); return d; }()))
    PUT(rpi, ([&] { double d, a = as[i]; asm volatile("cvt.rpi.f64.f64 %0, %1;" : "=d"(d) : "d"(a)); return d; }()))
    float a = (float)as[i];
    PUT(from_float32, CVT("f64.f32", double, "d", "f"))
}

extern "C" __global__ void float64_to_float32(const double *as, float *out, int n) {
    typedef float Out;
    BEGIN
    double a = as[i];
    PUT(rn, CVT("rn.f32.f64", float, "f", "d"))
    PUT(rz, CVT("rz.f32.f64", float, "f", "d"))
    PUT(rm, CVT("rm.f32.f64", float, "f", "d"))
    PUT(rp, CVT("rp.f32.f64", float, "f", "d"))
    PUT(rn_sat, CVT("rn.sat.f32.f64", float, "f", "d"))
    PUT(rn_ftz, CVT("rn.ftz.f32.f64", float, "f", "d"))
}

extern "C" __global__ void integer_to_float32(const unsigned long long *as, float *out, int n) {
    typedef float Out;
    BEGIN
#define FROM(name, T, r, text) { T a = (T)as[i]; PUT(name, CVT(text, float, "f", r)) }
    FROM(rn_s64, long long, "l", "rn.f32.s64")
    FROM(rz_s64, long long, "l", "rz.f32.s64")
    FROM(rm_s64, long long, "l", "rm.f32.s64")
    FROM(rp_s64, long long, "l", "rp.f32.s64")
    FROM(rn_u64, unsigned long long, "l", "rn.f32.u64")
    FROM(rz_u64, unsigned long long, "l", "rz.f32.u64")
    FROM(rp_u64, unsigned long long, "l", "rp.f32.u64")
    FROM(rn_s32, int, "r", "rn.f32.s32")
    FROM(rz_s32, int, "r", "rz.f32.s32")
    FROM(rm_s32, int, "r", "rm.f32.s32")
    FROM(rp_s32, int, "r", "rp.f32.s32")
    FROM(rn_u32, unsigned, "r", "rn.f32.u32")
    FROM(rz_u32, unsigned, "r", "rz.f32.u32")
    FROM(rn_s16, short, "h", "rn.f32.s16")
    FROM(rn_u16, unsigned short, "h", "rn.f32.u16")
    FROM(rn_s8, int, "r", "rn.f32.s8")
    FROM(rn_u8, unsigned, "r", "rn.f32.u8")
#undef FROM
}

extern "C" __global__ void integer_to_float64(const unsigned long long *as, double *out, int n) {
    typedef double Out;
    BEGIN
#define FROM(name, T, r, text) { T a = (T)as[i]; PUT(name, CVT(text, double, "d", r)) }
    FROM(rn_s64, long long, "l", "rn.f64.s64")
    FROM(rz_s64, long long, "l", "rz.f64.s64")
    FROM(rm_s64, long long, "l", "rm.f64.s64")
    FROM(rp_s64, long long, "l", "rp.f64.s64")
    FROM(rn_u64, unsigned long long, "l", "rn.f64.u64")
    FROM(rz_u64, unsigned long long, "l", "rz.f64.u64")
    FROM(rn_s32, int, "r", "rn.f64.s32")
    FROM(rn_u32, unsigned, "r", "rn.f64.u32")
    FROM(rn_s16, short, "h", "rn.f64.s16")
    FROM(rn_u8, unsigned, "r", "rn.f64.u8")
#undef FROM
}

extern "C" __global__ void integer_to_integer(const unsigned long long *as, long long *out, int n) {
    typedef long long Out;
    BEGIN
#define FROM(name, T, r, text, D, q) { T a = (T)as[i]; PUT(name, CVT(text, D, q, r)) }
    FROM(s32_s8, int, "r", "s32.s8", int, "r")
    FROM(u32_u8, unsigned, "r", "u32.u8", unsigned, "r")
    FROM(s32_s16, short, "h", "s32.s16", int, "r")
    FROM(u32_u16, unsigned short, "h", "u32.u16", unsigned, "r")
    FROM(s64_s32, int, "r", "s64.s32", long long, "l")
    FROM(u64_u32, unsigned, "r", "u64.u32", unsigned long long, "l")
    FROM(s64_u32, unsigned, "r", "s64.u32", long long, "l")
    FROM(u64_s32, int, "r", "u64.s32", unsigned long long, "l")
    FROM(s64_s16, short, "h", "s64.s16", long long, "l")
    FROM(s64_s8, int, "r", "s64.s8", long long, "l")
    FROM(u16_s8, int, "r", "u16.s8", unsigned short, "h")
    FROM(s16_s8, int, "r", "s16.s8", short, "h")
    FROM(u32_u64, unsigned long long, "l", "u32.u64", unsigned, "r")
    FROM(s32_s64, long long, "l", "s32.s64", int, "r")
    FROM(u16_u32, unsigned, "r", "u16.u32", unsigned short, "h")
    FROM(u16_u64, unsigned long long, "l", "u16.u64", unsigned short, "h")
    FROM(s8_s32, int, "r", "s8.s32", int, "r")
    FROM(u8_u32, unsigned, "r", "u8.u32", unsigned, "r")
    FROM(u8_s64, long long, "l", "u8.s64", unsigned, "r")
    FROM(sat_s8_s32, int, "r", "sat.s8.s32", int, "r")
    FROM(sat_u8_s32, int, "r", "sat.u8.s32", unsigned, "r")
    FROM(sat_u32_s64, long long, "l", "sat.u32.s64", unsigned, "r")
    FROM(sat_s32_s64, long long, "l", "sat.s32.s64", int, "r")
    FROM(sat_u16_s32, int, "r", "sat.u16.s32", unsigned short, "h")
    FROM(sat_s16_u32, unsigned, "r", "sat.s16.u32", short, "h")
    FROM(sat_s32_u32, unsigned, "r", "sat.s32.u32", int, "r")
    FROM(sat_u64_s64, long long, "l", "sat.u64.s64", unsigned long long, "l")
    FROM(sat_u32_s32, int, "r", "sat.u32.s32", unsigned, "r")
#undef FROM
}

// C++ casts and the library's rounding functions, as the compiler chooses instructions for them.
extern "C" __global__ void casts(const double *as, long long *out, int n) {
    BEGIN
    double a = as[i];
    float f = (float)a;
    PUT(double_to_int, __double2int_rz(a))
    PUT(double_to_uint, __double2uint_rz(a))
    PUT(float_to_int, __float2int_rz(f))
    PUT(float_to_uint_rn, __float2uint_rn(f))
    PUT(llrint, llrint(a))
    PUT(lroundf, lroundf(f))
    PUT(lrintf, lrintf(f))
    PUT(double_bits, __double_as_longlong(a))
    PUT(float_bits, __float_as_int(f))
    PUT(hi, __double2hiint(a))
    PUT(lo, __double2loint(a))
    PUT(floor, __double_as_longlong(floor(a)))
    PUT(ceil, __double_as_longlong(ceil(a)))
    PUT(trunc, __double_as_longlong(trunc(a)))
    PUT(rint, __double_as_longlong(rint(a)))
    PUT(round, __double_as_longlong(round(a)))
    PUT(roundf, __float_as_int(roundf(f)))
    PUT(floorf, __float_as_int(floorf(f)))
    PUT(truncf, __float_as_int(truncf(f)))
    PUT(bool_cast, (bool)a)
}
