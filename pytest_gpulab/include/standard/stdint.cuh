// <stdint.h> and <cstdint> for NVRTC, which lacks them. The definitions equal libcu++'s, which may follow.
#ifndef GPULAB_STANDARD_STDINT
#define GPULAB_STANDARD_STDINT

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t, uintptr_t, uintmax_t;
typedef int64_t intptr_t, intmax_t;
typedef int8_t int_fast8_t, int_least8_t;
typedef int16_t int_least16_t;
typedef int32_t int_least32_t;
typedef int64_t int_least64_t;
typedef uint8_t uint_fast8_t, uint_least8_t;
typedef uint16_t uint_least16_t;
typedef uint32_t uint_least32_t;
typedef uint64_t uint_least64_t;

#define INT8_MIN SCHAR_MIN
#define INT16_MIN SHRT_MIN
#define INT32_MIN INT_MIN
#define INT64_MIN LLONG_MIN
#define INT8_MAX SCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT32_MAX INT_MAX
#define INT64_MAX LLONG_MAX
#define UINT8_MAX UCHAR_MAX
#define UINT16_MAX USHRT_MAX
#define UINT32_MAX UINT_MAX
#define UINT64_MAX ULLONG_MAX
#ifndef SIZE_MAX
#define SIZE_MAX UINT64_MAX
#endif

#define INT8_C(X)   ((::int_least8_t) (X))
#define INT16_C(X)  ((::int_least16_t) (X))
#define INT32_C(X)  ((::int_least32_t) (X))
#define INT64_C(X)  ((::int_least64_t) (X))
#define UINT8_C(X)  ((::uint_least8_t) (X))
#define UINT16_C(X) ((::uint_least16_t) (X))
#define UINT32_C(X) ((::uint_least32_t) (X))
#define UINT64_C(X) ((::uint_least64_t) (X))

namespace std {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t; using ::int64_t;
using ::uint64_t; using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;
}  // namespace std

#endif
