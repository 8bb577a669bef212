// In place of CUDA's header of this name, for nvcc alone, which reads it before every file: what it includes for
// kernels, in its order, without what hosts call, textures and surfaces, and what glibc declares for GNU's sake. Macros
// keep out further headers (see devices/cuda/headers.py); whoever needs more gets CUDA's own.
#ifndef __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __CUDA_DEVICE_RUNTIME_API_H__
#define __TEXTURE_INDIRECT_FUNCTIONS_H__
#define __SURFACE_INDIRECT_FUNCTIONS_H__
#undef _GNU_SOURCE
#define _DEFAULT_SOURCE 1

#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <crt/host_config.h>
#include <stddef.h>
#include <sys/types.h>

// What the declaration of a launch names.
typedef enum cudaError {} cudaError_t;
typedef struct CUkern_st *cudaKernel_t;
typedef struct CUstream_st *cudaStream_t;

#include <builtin_types.h>
#include <crt/host_defines.h>
#include <vector_functions.h>
#include <crt/common_functions.h>
#ifdef GPULAB_MIN_MAX
#include <gpulab_min_max.h>
#endif
#include <crt/math_functions.h>
#include <crt/device_functions.h>
#include <device_launch_parameters.h>
#undef __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__

#define _GNU_SOURCE 1
#endif
