// The runtime library's functions for kernels: a launch is recorded, and runs when its own kernel has ended.
//
// calls/device_launches.py compiles this file to PTX and links it to programs with such calls in kernels. In the PTX,
// `__cudaCDP2` replaces `cdp_`: CUDA's headers define the real names as macros.
#include <stdlib.h>

namespace {

constexpr unsigned MOST = 2048;  // default of cudaLimitDevRuntimePendingLaunchCount
constexpr int ATTRIBUTES = 150;  // cudaDeviceAttr

struct Launch {
    const void *kernel;
    uint3 grid, block;
    unsigned shared_bytes;
    alignas(16) char parameters[4096];
};

struct Rectangle {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    int value;
};

}  // namespace

extern "C" {

__device__ unsigned gpulab_launch_count;
__device__ Launch gpulab_launches[MOST];
__device__ int gpulab_attributes[ATTRIBUTES];

__device__ void *cdp_GetParameterBufferV2(void *kernel, dim3 grid, dim3 block, unsigned shared_bytes)
{
    unsigned number = atomicAdd(&gpulab_launch_count, 1);
    if (number >= MOST)
        return nullptr;
    Launch &launch = gpulab_launches[number];
    launch.kernel = kernel;
    launch.grid = grid;
    launch.block = block;
    launch.shared_bytes = shared_bytes;
    return launch.parameters;
}

// Copies and sets are launches of kernels, too: they run in the order of all launches.
__global__ void cudaMemcpyAsync_in_kernel(Rectangle copy)
{
    for (size_t row = blockIdx.x; row < copy.height; row += gridDim.x)
        for (size_t i = threadIdx.x; i < copy.width; i += blockDim.x)
            copy.to[row * copy.to_pitch + i] = copy.from[row * copy.from_pitch + i];
}
__global__ void cudaMemsetAsync_in_kernel(Rectangle set)
{
    for (size_t row = blockIdx.x; row < set.height; row += gridDim.x)
        for (size_t i = threadIdx.x; i < set.width; i += blockDim.x)
            set.to[row * set.to_pitch + i] = (char)set.value;
}
__device__ cudaError_t cdp_run(void *kernel, Rectangle what)
{
    if (!what.width || !what.height)
        return cudaSuccess;
    dim3 grid = what.height < 64 ? (unsigned)what.height : 64;
    void *parameters = cdp_GetParameterBufferV2(kernel, grid, 256, 0);
    if (parameters)
        *(Rectangle *)parameters = what;
    return cudaSuccess;
}
__device__ cudaError_t cdp_Memcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                         size_t height, cudaMemcpyKind, cudaStream_t)
{
    return cdp_run((void *)cudaMemcpyAsync_in_kernel,
                   {(char *)to, (const char *)from, to_pitch, from_pitch, width, height, 0});
}
__device__ cudaError_t cdp_MemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
    return cdp_Memcpy2DAsync(to, size, from, size, size, 1, kind, stream);
}
__device__ cudaError_t cdp_Memset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t)
{
    return cdp_run((void *)cudaMemsetAsync_in_kernel, {(char *)to, nullptr, pitch, 0, width, height, value});
}
__device__ cudaError_t cdp_MemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    return cdp_Memset2DAsync(to, size, value, size, 1, stream);
}

__device__ cudaError_t cdp_Malloc(void **memory, size_t size)
{
    return (*memory = malloc(size)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
__device__ cudaError_t cdp_Free(void *memory) { return free(memory), cudaSuccess; }

__device__ cudaError_t cdp_GetDevice(int *device) { return *device = 0, cudaSuccess; }
__device__ cudaError_t cdp_GetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
__device__ cudaError_t cdp_RuntimeGetVersion(int *version) { return *version = 6000, cudaSuccess; }  // as on an H100
__device__ cudaError_t cdp_DeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    if ((unsigned)attribute >= ATTRIBUTES)
        return cudaErrorInvalidValue;
    return *value = gpulab_attributes[attribute], cudaSuccess;
}

__device__ cudaError_t cdp_LaunchDeviceV2(void *, cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_LaunchDeviceV2_ptsz(void *, cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_GetLastError() { return cudaSuccess; }
__device__ cudaError_t cdp_PeekAtLastError() { return cudaSuccess; }
__device__ const char *cdp_GetErrorString(cudaError_t error) { return error ? "an error" : "no error"; }
__device__ const char *cdp_GetErrorName(cudaError_t error) { return error ? "cudaErrorMemoryAllocation" : "cudaSuccess"; }

// Launches run in the order in which they were made, whatever their stream is.
__device__ cudaError_t cdp_StreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    return *stream = (cudaStream_t)2, cudaSuccess;
}
__device__ cudaError_t cdp_StreamDestroy(cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_EventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return *event = (cudaEvent_t)2, cudaSuccess;
}
__device__ cudaError_t cdp_EventDestroy(cudaEvent_t) { return cudaSuccess; }
__device__ cudaError_t cdp_EventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_StreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

}  // extern "C"
