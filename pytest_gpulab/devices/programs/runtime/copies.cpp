// Copies and sets. The simulated GPU checks both sides; the bytes are read from and written to the shared file here.
#include "copies.h"
#include "graphs.h"
#include "modules.h"

#include <unistd.h>

using namespace gpulab;

namespace {

bool transfer(ssize_t (*move)(uint64_t host, size_t size, off_t offset), uint64_t host, size_t size, uint64_t offset)
{
    while (size > 0) {
        ssize_t moved = move(host, size, (off_t)offset);
        if (moved <= 0)
            return false;  // the host's side is no memory
        host += (uint64_t)moved;
        offset += (uint64_t)moved;
        size -= (size_t)moved;
    }
    return true;
}

ssize_t write_file(uint64_t host, size_t size, off_t offset)
{
    return pwrite(shared_file(), (const void *)host, size, offset);
}

ssize_t read_file(uint64_t host, size_t size, off_t offset)
{
    return pread(shared_file(), (void *)host, size, offset);
}

}  // namespace

bool gpulab::move_row(uint64_t direction, uint64_t to, uint64_t from, size_t size)
{
    enum { TO_HOST = 2 };
    if (direction == TO_DEVICE)
        return transfer(write_file, from, size, to);
    if (direction == TO_HOST)
        return transfer(read_file, to, size, from);
    memmove((void *)to, (const void *)from, size);
    return true;
}

namespace {

GPULAB_INLINE cudaError_t copy(const char *name, void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    return copy_box(name, {(uint64_t)to, size, size}, {(uint64_t)from, size, size}, {size, 1, 1}, kind);
}

GPULAB_INLINE cudaError_t copy_2d(const char *name, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t width, size_t height, cudaMemcpyKind kind)
{
    if (width > to_pitch || width > from_pitch)
        return refuse(name, cudaErrorInvalidPitchValue);
    return copy_box(name, {(uint64_t)to, to_pitch, to_pitch * height}, {(uint64_t)from, from_pitch, from_pitch * height},
                    {width, height, 1}, kind);
}

GPULAB_INLINE cudaError_t copy_symbol(const char *name, const void *symbol, void *host, size_t size, size_t offset,
                                      cudaMemcpyKind kind, bool to_symbol)
{
    Variable *variable = variable_of(symbol);
    if (!variable)
        return refuse(name, cudaErrorInvalidSymbol);
    if (cudaError_t error = variable->load())
        return error;
    if (offset > variable->size || size > variable->size - offset)
        return refuse(name, cudaErrorInvalidValue);
    void *device = (void *)(variable->address + offset);
    return to_symbol ? copy(name, device, host, size, kind) : copy(name, host, device, size, kind);
}

// With a CUDA array on either side, the extent counts texels, and so does the position in the array.
GPULAB_INLINE cudaError_t copy_3d(const char *name, const cudaMemcpy3DParms *p)
{
    size_t texel = 1;
    cudaError_t error = cudaSuccess;
    auto side = [&](cudaArray_t array, const cudaPitchedPtr &of, const cudaPos &at) {
        if (array) {
            ArrayPlace start(array, 0, at.y, at.z);
            texel = start.texel;
            error = start.error;
            start.side.address += at.x * texel;
            return start.side;
        }
        size_t slice = of.pitch * of.ysize;
        return Side{(uint64_t)of.ptr + at.x + at.y * of.pitch + at.z * slice, of.pitch, slice};
    };
    Side to = side(p->dstArray, p->dstPtr, p->dstPos), from = side(p->srcArray, p->srcPtr, p->srcPos);
    if (error)
        return error;
    return copy_box(name, to, from, {p->extent.width * texel, p->extent.height, p->extent.depth}, p->kind);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    return copy(__func__, to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t)
{
    if (captured([=] { return cudaMemcpy(to, from, size, kind); }))
        return cudaSuccess;
    return copy(__func__, to, from, size, kind);
}
cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t size)
{
    return copy(__func__, to, from, size, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t size, cudaStream_t)
{
    return copy(__func__, to, from, size, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind)
{
    return copy_2d(__func__, to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t)
{
    if (captured([=] { return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind); }))
        return cudaSuccess;
    return copy_2d(__func__, to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *what) { return copy_3d(__func__, what); }
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *what, cudaStream_t) { return copy_3d(__func__, what); }

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, cudaMemcpyKind kind)
{
    return copy_symbol(__func__, symbol, (void *)from, size, offset, kind, true);
}
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t)
{
    if (captured([=] { return cudaMemcpyToSymbol(symbol, from, size, offset, kind); }))
        return cudaSuccess;
    return copy_symbol(__func__, symbol, (void *)from, size, offset, kind, true);
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, cudaMemcpyKind kind)
{
    return copy_symbol(__func__, symbol, to, size, offset, kind, false);
}
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t)
{
    return copy_symbol(__func__, symbol, to, size, offset, kind, false);
}

#define GPULAB_SET(address, pitch, value, width, height) \
    ask(__func__, (uint64_t)(address), (size_t)(pitch), value, (size_t)(width), (size_t)(height)).error

cudaError_t cudaMemset(void *to, int value, size_t size) { return GPULAB_SET(to, size, value, size, 1); }
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t)
{
    if (captured([=] { return cudaMemset(to, value, size); }))
        return cudaSuccess;
    return GPULAB_SET(to, size, value, size, 1);
}
cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
    return GPULAB_SET(to, pitch, value, width, height);
}
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t)
{
    return GPULAB_SET(to, pitch, value, width, height);
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent)
{
    return GPULAB_SET(to.ptr, to.pitch, value, extent.width, extent.height * extent.depth);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t)
{
    return GPULAB_SET(to.ptr, to.pitch, value, extent.width, extent.height * extent.depth);
}

}  // extern "C"
