// The usual parts of <limits> for NVRTC, which compiles for the simulated GPU and lacks this header.
#ifndef GPULAB_STANDARD_LIMITS
#define GPULAB_STANDARD_LIMITS

namespace std {

template <typename T> struct numeric_limits {
    static constexpr bool is_specialized = false;
};

template <typename T> struct numeric_limits<const T> : numeric_limits<T> {};

#define GPULAB_LIMITS(type, smallest, least, largest, integer, sign, bits, decimals, step, infinite, nan, denormal) \
    template <> struct numeric_limits<type> {                                                                    \
        static constexpr bool is_specialized = true;                                                             \
        static constexpr bool is_integer = integer;                                                              \
        static constexpr bool is_exact = integer;                                                                \
        static constexpr bool is_iec559 = !integer;                                                              \
        static constexpr bool is_bounded = true;                                                                 \
        static constexpr bool is_signed = sign;                                                                  \
        static constexpr bool is_modulo = integer && !sign;                                                      \
        static constexpr bool has_infinity = !integer;                                                           \
        static constexpr bool has_quiet_NaN = !integer;                                                          \
        static constexpr int radix = 2;                                                                          \
        static constexpr int digits = bits;                                                                      \
        static constexpr int digits10 = (bits - !integer) * 643 / 2136; /* times the decimal logarithm of 2 */   \
        static constexpr int max_digits10 = decimals;                                                            \
        __host__ __device__ static constexpr type min() { return smallest; }                                     \
        __host__ __device__ static constexpr type lowest() { return least; }                                     \
        __host__ __device__ static constexpr type max() { return largest; }                                      \
        __host__ __device__ static constexpr type epsilon() { return step; }                                     \
        __host__ __device__ static constexpr type infinity() { return infinite; }                                \
        __host__ __device__ static constexpr type quiet_NaN() { return nan; }                                    \
        __host__ __device__ static constexpr type denorm_min() { return denormal; }                              \
    };

#define GPULAB_INTEGER_LIMITS(type, smallest, largest)                                                       \
    GPULAB_LIMITS(type, smallest, smallest, largest, true, ((type)-1 < (type)0),                             \
                  (8 * (int)sizeof(type) - ((type)-1 < (type)0)), 0, 0, 0, 0, 0)

#define GPULAB_FLOAT_LIMITS(type, smallest, largest, step, mantissa, infinite, nan, denormal)                        \
    GPULAB_LIMITS(type, smallest, -largest, largest, false, true, mantissa, (2 + mantissa * 643 / 2136), step, infinite, \
                  nan, denormal)

GPULAB_INTEGER_LIMITS(signed char, -128, 127)
GPULAB_INTEGER_LIMITS(unsigned char, 0, 255)
GPULAB_INTEGER_LIMITS(char, -128, 127)
GPULAB_INTEGER_LIMITS(short, -32768, 32767)
GPULAB_INTEGER_LIMITS(unsigned short, 0, 65535)
GPULAB_INTEGER_LIMITS(int, -2147483647 - 1, 2147483647)
GPULAB_INTEGER_LIMITS(unsigned, 0, 4294967295u)
GPULAB_INTEGER_LIMITS(long, sizeof(long) == 4 ? -2147483647l - 1 : (long)(-9223372036854775807ll - 1),
                      sizeof(long) == 4 ? 2147483647l : (long)9223372036854775807ll)
GPULAB_INTEGER_LIMITS(unsigned long, 0, ~0ul)
GPULAB_INTEGER_LIMITS(long long, -9223372036854775807ll - 1, 9223372036854775807ll)
GPULAB_INTEGER_LIMITS(unsigned long long, 0, ~0ull)
GPULAB_FLOAT_LIMITS(float, 1.175494351e-38f, 3.402823466e+38f, 1.192092896e-7f, 24, __builtin_bit_cast(float, 0x7f800000u),
                    __builtin_bit_cast(float, 0x7fffffffu), __builtin_bit_cast(float, 1u))
GPULAB_FLOAT_LIMITS(double, 2.2250738585072014e-308, 1.7976931348623158e+308, 2.2204460492503131e-16, 53,
                    __builtin_bit_cast(double, 0x7ff0000000000000ull), __builtin_bit_cast(double, 0x7fffffffffffffffull),
                    __builtin_bit_cast(double, 1ull))

#undef GPULAB_LIMITS
#undef GPULAB_INTEGER_LIMITS
#undef GPULAB_FLOAT_LIMITS

}  // namespace std

#endif
