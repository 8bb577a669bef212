// Allocations: device, managed and pinned memory, pools.
#include "connection.h"
#include "graphs.h"

using namespace gpulab;

namespace {

const char *const NO_POINTER = "there is no variable for the address: pass &pointer";

// Allocate device memory.
GPULAB_INLINE cudaError_t allocate(const char *name, void **memory, size_t size)
{
    return memory ? ask(name, size).into(memory) : refuse(name, cudaErrorInvalidValue, NO_POINTER);
}

// Allocate memory that the host may use, too: it is mapped at its device address.
GPULAB_INLINE cudaError_t allocate_mapped(const char *name, void **memory, size_t size)
{
    if (!memory)
        return refuse(name, cudaErrorInvalidValue, NO_POINTER);
    uint64_t address = 0, mapped = 0, offset = 0;
    cudaError_t error = ask(name, size).into(&address, &mapped, &offset);
    if (error)
        return error;
    if (mapped)
        map_memory(address, mapped, offset);
    *memory = (void *)address;
    return cudaSuccess;
}

// In a captured stream the memory belongs to the graph.
GPULAB_INLINE cudaError_t allocate_in_stream(const char *name, void **memory, size_t size)
{
    cudaError_t error = allocate(name, memory, size);
    if (!error && capture)
        captured(owning_node(*memory));
    return error;
}

GPULAB_INLINE cudaError_t release(const char *name, void *memory)
{
    uint64_t mapped = 0;
    if (freed_with_graph(memory))
        return cudaSuccess;
    cudaError_t error = ask(name, memory).into(&mapped);
    if (!error && mapped)
        unmap_memory((uint64_t)memory, mapped);
    return error;
}

cudaMemPool_t the_pool() { return (cudaMemPool_t)1; }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void **memory, size_t size) { return allocate(__func__, memory, size); }
cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t) { return allocate_in_stream(__func__, memory, size); }
cudaError_t cudaMallocFromPoolAsync(void **memory, size_t size, cudaMemPool_t, cudaStream_t)
{
    return allocate_in_stream(__func__, memory, size);
}
cudaError_t cudaMallocManaged(void **memory, size_t size, unsigned) { return allocate_mapped(__func__, memory, size); }
cudaError_t cudaMallocHost(void **memory, size_t size) { return allocate_mapped(__func__, memory, size); }
cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned) { return allocate_mapped(__func__, memory, size); }

cudaError_t cudaMallocPitch(void **memory, size_t *pitch, size_t width, size_t height)
{
    return ask(__func__, width, height).into(memory, pitch);
}

cudaError_t cudaMalloc3D(cudaPitchedPtr *memory, cudaExtent extent)
{
    cudaError_t error =
        ask(__func__, extent.width, extent.height * extent.depth).into(&memory->ptr, &memory->pitch);
    memory->xsize = extent.width;
    memory->ysize = extent.height;
    return error;
}

cudaError_t cudaFree(void *memory) { return release(__func__, memory); }
cudaError_t cudaFreeAsync(void *memory, cudaStream_t)
{
    return captured([memory] { return cudaFree(memory); }) ? cudaSuccess : release(__func__, memory);
}
cudaError_t cudaFreeHost(void *memory) { return release(__func__, memory); }

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned)
{
    uint64_t start = 0, mapped = 0, offset = 0;
    cudaError_t error = ask(__func__, memory, size).into(&start, &mapped, &offset);
    if (error)
        return error;
    std::string contents((const char *)start, mapped);  // whole pages: their other bytes keep their values
    map_memory(start, mapped, offset);
    memcpy((void *)start, contents.data(), mapped);
    return cudaSuccess;
}

// The pages stay shared: the host may use them as before.
cudaError_t cudaHostUnregister(void *memory) { return ask(__func__, memory).error; }

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    return ask(__func__, host).into(device);
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *host)
{
    *flags = cudaHostAllocMapped;
    return ask("cudaHostGetDevicePointer", host).error;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) { return ask(__func__).into(available, total); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *pointer)
{
    memset(found, 0, sizeof *found);
    uint64_t kind = 0;
    cudaError_t error = ask(__func__, pointer).into(&kind);
    found->type = (cudaMemoryType)kind;
    if (kind == cudaMemoryTypeDevice || kind == cudaMemoryTypeManaged || kind == cudaMemoryTypeHost)
        found->devicePointer = (void *)pointer;
    if (kind != cudaMemoryTypeDevice)
        found->hostPointer = kind == cudaMemoryTypeUnregistered ? nullptr : (void *)pointer;
    return error;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void *, size_t, cudaMemLocation, unsigned, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
#else
cudaError_t cudaMemPrefetchAsync(const void *, size_t, int, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
#endif
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void *, size_t, unsigned) { return cudaSuccess; }

// All pools are one.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) { return *pool = the_pool(), cudaSuccess; }
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int) { return *pool = the_pool(), cudaSuccess; }
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *) { return *pool = the_pool(), cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc *, size_t) { return cudaSuccess; }

}  // extern "C"
