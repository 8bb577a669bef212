// Functions of CUDA 12 that CUDA 13 has removed, or declares with other parameters.
#pragma once

static inline cudaError_t cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }
static inline cudaError_t cudaThreadExit(void) { return cudaDeviceReset(); }

#ifdef __cplusplus
static inline cudaMemLocation gpulab_location(int device)
{
    return {device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, device};
}

static inline cudaError_t cudaMemPrefetchAsync(const void *memory, size_t size, int device, cudaStream_t stream = 0)
{
    return cudaMemPrefetchAsync(memory, size, gpulab_location(device), 0, stream);
}

static inline cudaError_t cudaMemAdvise(const void *memory, size_t size, cudaMemoryAdvise advice, int device)
{
    return cudaMemAdvise(memory, size, advice, gpulab_location(device));
}
#endif
