// Names that nvcc knows before the first line of a file, because it includes the C library's headers. NVRTC, which
// compiles for the simulated GPU, includes none. The definitions equal libcu++'s, which may follow.
#ifndef GPULAB_STANDARD_BUILTINS
#define GPULAB_STANDARD_BUILTINS

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef signed long long int64_t;
typedef unsigned char u_int8_t, u_char;
typedef unsigned short u_int16_t, u_short, ushort;
typedef unsigned int u_int32_t, u_int, uint;
typedef unsigned long long u_int64_t;
typedef unsigned long u_long, ulong;
typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t, ssize_t;
typedef struct alignas(16) {
    long long whole;
    double real;
} max_align_t;
typedef float float_t;
typedef double double_t;

extern "C" __device__ void *alloca(size_t);  // nvcc's; NVRTC has none, so the simulated GPU cannot run it
#define __builtin_alloca alloca

namespace std {
using ::size_t;
using ::ptrdiff_t;
using nullptr_t = decltype(nullptr);
}  // namespace std

static inline __device__ double pow(int a, int b) { return pow((double)a, b); }
static inline __device__ size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length])
        ++length;
    return length;
}

#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-SHRT_MAX - 1)
#define SHRT_MAX 0x7fff
#define USHRT_MAX 0xffff
#define INT_MIN (-INT_MAX - 1)
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffff
#define LONG_MIN (-LONG_MAX - 1)
#ifdef __LP64__
#define LONG_MAX LLONG_MAX
#define ULONG_MAX ULLONG_MAX
#else
#define LONG_MAX INT_MAX
#define ULONG_MAX UINT_MAX
#endif
#define LLONG_MIN (-LLONG_MAX - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define ULLONG_MAX 0xffffffffffffffffUL
#define RAND_MAX 2147483647
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define EOF (-1)
#define BUFSIZ 8192
#define CLOCKS_PER_SEC ((clock_t)1000000)
#define offsetof(type, member) __builtin_offsetof(type, member)
#define __builtin_popcount(x) __popc(x)
#define __builtin_popcountll(x) __popcll(x)
#define __builtin_clz(x) __clz(x)
#define __builtin_clzll(x) __clzll(x)
#define __builtin_ctz(x) (__ffs(x) - 1)

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#define MAXFLOAT 3.40282347e+38F

#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_Ef 2.7182818284590452354F
#define M_LOG2Ef 1.4426950408889634074F
#define M_LOG10Ef 0.43429448190325182765F
#define M_LN2f 0.69314718055994530942F
#define M_LN10f 2.30258509299404568402F
#define M_PIf 3.14159265358979323846F
#define M_PI_2f 1.57079632679489661923F
#define M_PI_4f 0.78539816339744830962F
#define M_1_PIf 0.31830988618379067154F
#define M_2_PIf 0.63661977236758134308F
#define M_2_SQRTPIf 1.12837916709551257390F
#define M_SQRT2f 1.41421356237309504880F
#define M_SQRT1_2f 0.70710678118654752440F

#endif
