// The runtime library's functions for kernels: a launch is recorded, and runs when its own kernel has ended.
//
// Compiled to PTX and linked to programs with kernels that launch kernels; see calls/device_launches.py. In the PTX
// `__cudaCDP2` replaces `cdp_`: CUDA's headers define the real names as macros.

namespace {

constexpr unsigned MOST = 2048;  // default of cudaLimitDevRuntimePendingLaunchCount

struct Launch {
    const void *kernel;
    uint3 grid, block;
    unsigned shared_bytes;
    alignas(16) char parameters[4096];
};

}  // namespace

extern "C" {

__device__ unsigned gpulab_launch_count;
__device__ Launch gpulab_launches[MOST];

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

__device__ cudaError_t cdp_LaunchDeviceV2(void *, cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_LaunchDeviceV2_ptsz(void *, cudaStream_t) { return cudaSuccess; }
__device__ cudaError_t cdp_GetLastError() { return cudaSuccess; }
__device__ cudaError_t cdp_PeekAtLastError() { return cudaSuccess; }
__device__ const char *cdp_GetErrorString(cudaError_t) { return "no error"; }

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
