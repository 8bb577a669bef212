// Launches, and what is asked of a kernel.
#include "graphs.h"
#include "modules.h"

using namespace gpulab;

namespace {

enum { COOPERATIVE = 1, CLUSTERED = 2 };

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void *site;
};
thread_local Configuration pushed;

cudaError_t launch(Kernel *kernel, dim3 grid, dim3 block, void **parameters, size_t shared, cudaStream_t stream,
                   unsigned how, void *site)
{
    if (!kernel)
        return refuse("cudaLaunchKernel", cudaErrorInvalidDeviceFunction);
    if (cudaError_t error = kernel->load())
        return error;
    Arguments arguments;
    std::string values;
    for (size_t i = 0; i < kernel->parameter_sizes.size(); i++)
        values.append((const char *)parameters[i], kernel->parameter_sizes[i]);
    for (uint64_t each : {(uint64_t)kernel->number, (uint64_t)grid.x, (uint64_t)grid.y, (uint64_t)grid.z,
                          (uint64_t)block.x, (uint64_t)block.y, (uint64_t)block.z, (uint64_t)shared, (uint64_t)stream,
                          (uint64_t)how})
        arguments.add(each);
    arguments.add(values);
    if (captured([=] { return exchange("launch", arguments.packed, site).error; }))
        return cudaSuccess;
    return exchange("launch", arguments.packed, site).error;
}

#define SITE __builtin_return_address(0)

template <class... T>
GPULAB_INLINE Answer ask_of(const char *name, const void *function, T... values)
{
    Kernel *kernel = kernel_of(function);
    if (!kernel)
        return {refuse(name, cudaErrorInvalidDeviceFunction), ""};
    if (cudaError_t error = kernel->load())
        return {error, ""};
    return ask(name, kernel->number, values...);
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    pushed = {grid, block, shared, stream, SITE};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)kernel_of(function);
    return *kernel ? cudaSuccess : refuse(__func__, cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **parameters, size_t shared,
                               cudaStream_t stream)
{
    return launch((Kernel *)kernel, grid, block, parameters, shared, stream, 0, pushed.site);
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *function) { return __cudaGetKernel(kernel, function); }

// Code of nvcc 12 calls this where it has pushed a configuration; programs call it by themselves, too.
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **parameters, size_t shared,
                             cudaStream_t stream)
{
    return launch(kernel_of(function), grid, block, parameters, shared, stream, 0, SITE);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **parameters, size_t shared,
                                        cudaStream_t stream)
{
    return launch(kernel_of(function), grid, block, parameters, shared, stream, COOPERATIVE, SITE);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **parameters)
{
    unsigned kind = 0;
    for (unsigned i = 0; i < how->numAttrs; i++) {
        if (how->attrs[i].id == cudaLaunchAttributeCooperative && how->attrs[i].val.cooperative)
            kind |= COOPERATIVE;
        auto extents = how->attrs[i].val.clusterDim;
        if (how->attrs[i].id == cudaLaunchAttributeClusterDimension && extents.x * extents.y * extents.z > 1)
            kind |= CLUSTERED;
    }
    return launch(kernel_of(function), how->gridDim, how->blockDim, parameters, how->dynamicSmemBytes, how->stream,
                  kind, SITE);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found, const void *function)
{
    Answer answer = ask_of(__func__, function);
    memset(found, 0, sizeof *found);
    return answer.into(&found->binaryVersion, &found->ptxVersion, &found->constSizeBytes, &found->localSizeBytes,
                       &found->sharedSizeBytes, &found->maxThreadsPerBlock, &found->numRegs,
                       &found->maxDynamicSharedSizeBytes);
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
    return ask_of(__func__, function, attribute, value).error;
}

cudaError_t cudaFuncSetCacheConfig(const void *function, cudaFuncCache)
{
    return kernel_of(function) ? cudaSuccess : refuse(__func__, cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncSetSharedMemConfig(const void *function, cudaSharedMemConfig)
{
    return kernel_of(function) ? cudaSuccess : refuse(__func__, cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncGetName(const char **name, const void *function)
{
    Kernel *kernel = kernel_of(function);
    if (!kernel)
        return refuse(__func__, cudaErrorInvalidDeviceFunction);
    *name = kernel->name.c_str();
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t shared, unsigned)
{
    return ask_of("cudaOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared).into(blocks);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared)
{
    return ask_of(__func__, function, threads, shared).into(blocks);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *blocks, const void *, const cudaLaunchConfig_t *)
{
    return *blocks = 8, cudaSuccess;  // the portable size, as for a kernel that fits
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *how)
{
    int blocks = 0, size = 1, multiprocessors = 0;
    dim3 threads = how->blockDim;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads.x * threads.y * threads.z,
                                                                      how->dynamicSmemBytes);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    for (unsigned i = 0; i < how->numAttrs; i++) {
        auto extents = how->attrs[i].val.clusterDim;
        if (how->attrs[i].id == cudaLaunchAttributeClusterDimension)
            size = extents.x * extents.y * extents.z;
    }
    return *clusters = blocks * multiprocessors / size, error;
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks, int threads)
{
    return ask_of(__func__, function, blocks, threads).into(bytes);
}

}  // extern "C"
