// Replacement of CUDA's header of this name, which nvcc includes before every file. It includes the same headers for
// kernels in the same order, without the host API, textures, surfaces and glibc's GNU extensions, to save time. Macros
// keep out further headers (see devices/cuda/nvcc/headers.py). A file that needs more is compiled with CUDA's header.
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

// The types in the declaration of a launch.
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
