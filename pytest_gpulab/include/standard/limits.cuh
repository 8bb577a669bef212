// The usual parts of <limits> for NVRTC, which compiles for the simulated GPU and lacks this header.
#ifndef GPULAB_STANDARD_LIMITS
#define GPULAB_STANDARD_LIMITS

namespace std {

template <typename T> struct numeric_limits {
    static constexpr bool is_specialized = false;
};

#define GPULAB_INTEGER_LIMITS(type, smallest, largest)                          \
    template <> struct numeric_limits<type> {                                   \
        static constexpr bool is_specialized = true;                            \
        static constexpr bool is_integer = true;                                \
        static constexpr bool is_signed = (type)-1 < (type)0;                   \
        static constexpr int digits = 8 * sizeof(type) - is_signed;             \
        __host__ __device__ static constexpr type min() { return smallest; }    \
        __host__ __device__ static constexpr type lowest() { return smallest; } \
        __host__ __device__ static constexpr type max() { return largest; }     \
    };

#define GPULAB_FLOAT_LIMITS(type, smallest, largest, step, mantissa, infinite, nan)      \
    template <> struct numeric_limits<type> {                                            \
        static constexpr bool is_specialized = true;                                     \
        static constexpr bool is_integer = false;                                        \
        static constexpr bool is_signed = true;                                          \
        static constexpr bool has_infinity = true;                                       \
        static constexpr int digits = mantissa;                                          \
        __host__ __device__ static constexpr type min() { return smallest; }             \
        __host__ __device__ static constexpr type lowest() { return -largest; }          \
        __host__ __device__ static constexpr type max() { return largest; }              \
        __host__ __device__ static constexpr type epsilon() { return step; }             \
        __host__ __device__ static constexpr type infinity() { return infinite; }        \
        __host__ __device__ static constexpr type quiet_NaN() { return nan; }            \
    };

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
                    __builtin_bit_cast(float, 0x7fffffffu))
GPULAB_FLOAT_LIMITS(double, 2.2250738585072014e-308, 1.7976931348623158e+308, 2.2204460492503131e-16, 53,
                    __builtin_bit_cast(double, 0x7ff0000000000000ull), __builtin_bit_cast(double, 0x7fffffffffffffffull))

#undef GPULAB_INTEGER_LIMITS
#undef GPULAB_FLOAT_LIMITS

}  // namespace std

#endif
