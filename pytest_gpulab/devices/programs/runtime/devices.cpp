// The device: properties and limits of the modelled GPU, synchronisation, errors' names.
#include "connection.h"

#include <vector>

using namespace gpulab;

namespace {

struct ErrorText {
    int code;
    const char *name, *text;
};
const ErrorText ERRORS[] = {
#include "errors.inc"
};

const ErrorText *text_of(int code)
{
    for (auto &each : ERRORS)
        if (each.code == code)
            return &each;
    return nullptr;
}

// The values of all attributes, by number.
const std::vector<int64_t> &attributes()
{
    static std::vector<int64_t> found;
    if (found.empty()) {
        Answer answer = ask("attributes");
        for (size_t i = 0; i < answer.words(); i++)
            found.push_back((int64_t)answer.word(i));
    }
    return found;
}

int attribute(int number)
{
    auto &found = attributes();
    return (size_t)number < found.size() ? (int)found[(size_t)number] : 0;
}

GPULAB_INLINE cudaError_t only_first(const char *name, int device)
{
    return device == 0 ? cudaSuccess : refuse(name, cudaErrorInvalidDevice);
}

}  // namespace

extern "C" {

const char *cudaGetErrorName(cudaError_t error)
{
    auto *found = text_of(error);
    return found ? found->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    auto *found = text_of(error);
    return found ? found->text : "unrecognized error code";
}

cudaError_t cudaDeviceSynchronize(void) { return ask(__func__).error; }
cudaError_t cudaDeviceReset(void) { return ask(__func__).error; }
#if CUDART_VERSION < 13000  // see earlier_cuda.h
cudaError_t cudaThreadSynchronize(void) { return ask("cudaDeviceSynchronize").error; }
cudaError_t cudaThreadExit(void) { return ask("cudaDeviceReset").error; }
#endif

cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return only_first(__func__, device); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return only_first(__func__, device); }
cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetValidDevices(int *, int) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned *flags) { return *flags = 0, cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *config) { return *config = cudaFuncCachePreferNone, cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig *config)
{
    return *config = cudaSharedMemBankSizeFourByte, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return refuse(__func__, cudaErrorPeerAccessUnsupported); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return refuse(__func__, cudaErrorPeerAccessNotEnabled); }
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
cudaError_t cudaCtxResetPersistingL2Cache(void) { return cudaSuccess; }

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) { return ask(__func__, limit, value).error; }
cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit) { return ask(__func__, limit).into(value); }

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    if (size < 13)
        return refuse(__func__, cudaErrorInvalidValue);
    strcpy(text, "0000:00:00.0");
    return only_first(__func__, device);
}
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *) { return *device = 0, cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr number, int device)
{
    *value = attribute(number);
    return only_first(__func__, device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device != 0)
        return refuse(__func__, cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    Answer name = ask("name");
    strncpy(p->name, name.body.c_str(), sizeof p->name - 1);
    p->totalGlobalMem = 0;
    size_t available;
    ask("cudaMemGetInfo").into(&available, &p->totalGlobalMem);
    auto extents = [](int *to, std::initializer_list<int> numbers) {
        for (int number : numbers)
            *to++ = attribute(number);
    };
    p->sharedMemPerBlock = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlock);
    p->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
    p->warpSize = attribute(cudaDevAttrWarpSize);
    p->memPitch = (size_t)attribute(cudaDevAttrMaxPitch);
    p->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    extents(p->maxThreadsDim, {cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ});
    extents(p->maxGridSize, {cudaDevAttrMaxGridDimX, cudaDevAttrMaxGridDimY, cudaDevAttrMaxGridDimZ});
    p->totalConstMem = (size_t)attribute(cudaDevAttrTotalConstantMemory);
    p->major = attribute(cudaDevAttrComputeCapabilityMajor);
    p->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    p->textureAlignment = (size_t)attribute(cudaDevAttrTextureAlignment);
    p->texturePitchAlignment = (size_t)attribute(cudaDevAttrTexturePitchAlignment);
    p->surfaceAlignment = (size_t)attribute(cudaDevAttrSurfaceAlignment);
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->canMapHostMemory = attribute(cudaDevAttrCanMapHostMemory);
    p->maxTexture1D = attribute(cudaDevAttrMaxTexture1DWidth);
    extents(p->maxTexture2D, {cudaDevAttrMaxTexture2DWidth, cudaDevAttrMaxTexture2DHeight});
    extents(p->maxTexture3D,
            {cudaDevAttrMaxTexture3DWidth, cudaDevAttrMaxTexture3DHeight, cudaDevAttrMaxTexture3DDepth});
    extents(p->maxTexture1DLayered, {cudaDevAttrMaxTexture1DLayeredWidth, cudaDevAttrMaxTexture1DLayeredLayers});
    extents(p->maxTexture2DLayered, {cudaDevAttrMaxTexture2DLayeredWidth, cudaDevAttrMaxTexture2DLayeredHeight,
                                     cudaDevAttrMaxTexture2DLayeredLayers});
    p->concurrentKernels = attribute(cudaDevAttrConcurrentKernels);
    p->ECCEnabled = attribute(cudaDevAttrEccEnabled);
    p->asyncEngineCount = attribute(cudaDevAttrAsyncEngineCount);
    p->unifiedAddressing = attribute(cudaDevAttrUnifiedAddressing);
    p->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
    p->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    p->persistingL2CacheMaxSize = attribute(cudaDevAttrMaxPersistingL2CacheSize);
    p->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    p->streamPrioritiesSupported = attribute(cudaDevAttrStreamPrioritiesSupported);
    p->globalL1CacheSupported = attribute(cudaDevAttrGlobalL1CacheSupported);
    p->localL1CacheSupported = attribute(cudaDevAttrLocalL1CacheSupported);
    p->sharedMemPerMultiprocessor = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
    p->managedMemory = attribute(cudaDevAttrManagedMemory);
    p->concurrentManagedAccess = attribute(cudaDevAttrConcurrentManagedAccess);
    p->computePreemptionSupported = attribute(cudaDevAttrComputePreemptionSupported);
    p->canUseHostPointerForRegisteredMem = attribute(cudaDevAttrCanUseHostPointerForRegisteredMem);
    p->cooperativeLaunch = attribute(cudaDevAttrCooperativeLaunch);
    p->sharedMemPerBlockOptin = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
    p->reservedSharedMemPerBlock = (size_t)attribute(cudaDevAttrReservedSharedMemoryPerBlock);
    p->hostRegisterSupported = attribute(cudaDevAttrHostRegisterSupported);
    p->memoryPoolsSupported = attribute(cudaDevAttrMemoryPoolsSupported);
    p->clockRate = attribute(cudaDevAttrClockRate);
    p->memoryClockRate = attribute(cudaDevAttrMemoryClockRate);
    p->deviceOverlap = attribute(cudaDevAttrGpuOverlap);
    p->maxTexture1DLinear = attribute(cudaDevAttrMaxTexture1DLinearWidth);
    p->singleToDoublePrecisionPerfRatio = attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
    return name.error;
}

}  // extern "C"
