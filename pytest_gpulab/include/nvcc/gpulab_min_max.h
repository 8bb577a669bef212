// Replacement of CUDA's mathematical functions for files that call only min, max, fminf and fmaxf: the others take a
// quarter of nvcc's time for such a file. The overloads and built-in functions are the same as CUDA's.
#ifndef GPULAB_MIN_MAX_H
#define GPULAB_MIN_MAX_H

#define GPULAB_BUILT_IN(type, least, greatest)                                                             \
    extern "C" __host__ __device__ __device_builtin__ type least(const type a, const type b) __THROW;      \
    extern "C" __host__ __device__ __device_builtin__ type greatest(const type a, const type b) __THROW;
GPULAB_BUILT_IN(int, min, max)
GPULAB_BUILT_IN(unsigned, umin, umax)
GPULAB_BUILT_IN(long long, llmin, llmax)
GPULAB_BUILT_IN(unsigned long long, ullmin, ullmax)
GPULAB_BUILT_IN(float, fminf, fmaxf)
GPULAB_BUILT_IN(double, fmin, fmax)
#undef GPULAB_BUILT_IN

#define GPULAB_OVERLOAD(type, one, other, least, greatest)                                                 \
    static inline __host__ __device__ type min(const one a, const other b) { return (type)least(a, b); }   \
    static inline __host__ __device__ type max(const one a, const other b) { return (type)greatest(a, b); }
#define GPULAB_OVERLOADS(type, signed_type, least, greatest)     \
    GPULAB_OVERLOAD(type, type, type, least, greatest)           \
    GPULAB_OVERLOAD(type, signed_type, type, least, greatest)    \
    GPULAB_OVERLOAD(type, type, signed_type, least, greatest)
GPULAB_OVERLOADS(unsigned, int, umin, umax)
GPULAB_OVERLOAD(long, long, long, llmin, llmax)
GPULAB_OVERLOADS(unsigned long, long, ullmin, ullmax)
GPULAB_OVERLOAD(long long, long long, long long, llmin, llmax)
GPULAB_OVERLOADS(unsigned long long, long long, ullmin, ullmax)
GPULAB_OVERLOAD(float, float, float, fminf, fmaxf)
GPULAB_OVERLOADS(double, float, fmin, fmax)
#undef GPULAB_OVERLOADS
#undef GPULAB_OVERLOAD

#endif
