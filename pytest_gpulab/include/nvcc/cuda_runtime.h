// In front of CUDA's header of this name, for nvcc alone, which reads it before every file: an eighth of its time goes
// into what glibc declares for GNU's sake and into what starts kernels, or reads textures and surfaces, in device code.
// Whoever needs it does not compile without, and is compiled with it. CUDA's own guards keep its headers out.
#undef _GNU_SOURCE
#define _DEFAULT_SOURCE 1
#define __CUDA_DEVICE_RUNTIME_API_H__
#define __TEXTURE_INDIRECT_FUNCTIONS_H__
#define __SURFACE_INDIRECT_FUNCTIONS_H__
#include_next <cuda_runtime.h>
#define _GNU_SOURCE 1
