// CUDA arrays, textures and surfaces.
#include "copies.h"

using namespace gpulab;

gpulab::ArrayPlace::ArrayPlace(cudaArray_const_t array, size_t x_bytes, size_t y, size_t z)
{
    uint64_t address = 0, row = 0, rows = 0;
    error = ask("array", array).into(&address, &row, &rows, &texel);
    side = {address + x_bytes + y * row + z * row * rows, row, row * rows};
}

namespace {

struct Format {
    uint64_t channels, bits, kind;

    explicit Format(const cudaChannelFormatDesc &of)
        : channels((of.x > 0) + (of.y > 0) + (of.z > 0) + (of.w > 0)), bits(of.x), kind(of.f)
    {
    }
};

GPULAB_INLINE cudaError_t allocate_array(const char *name, cudaArray_t *array, const cudaChannelFormatDesc *of,
                                         cudaExtent extent, unsigned flags)
{
    if (flags & cudaArrayCubemap)
        missing("a cubemap");
    Format format(*of);
    return ask(name, format.channels, format.bits, format.kind, extent.width, extent.height, extent.depth, flags)
        .into(array);
}

GPULAB_INLINE cudaError_t to_array(const char *name, cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                   size_t width, size_t height, cudaMemcpyKind kind)
{
    ArrayPlace place(to, x, y, 0);
    if (place.error)
        return place.error;
    return copy_box(name, place.side, {(uint64_t)from, pitch, pitch * height}, {width, height, 1}, kind);
}

GPULAB_INLINE cudaError_t from_array(const char *name, void *to, size_t pitch, cudaArray_const_t from, size_t x,
                                     size_t y, size_t width, size_t height, cudaMemcpyKind kind)
{
    ArrayPlace place(from, x, y, 0);
    if (place.error)
        return place.error;
    return copy_box(name, {(uint64_t)to, pitch, pitch * height}, place.side, {width, height, 1}, kind);
}

}  // namespace

extern "C" {

cudaError_t cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *format, size_t width, size_t height,
                            unsigned flags)
{
    return allocate_array(__func__, array, format, {width, height, 0}, flags);
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *format, cudaExtent extent, unsigned flags)
{
    return allocate_array(__func__, array, format, extent, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) { return ask(__func__, array).error; }

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc *format, cudaExtent *extent, unsigned *flags, cudaArray_t array)
{
    uint64_t channels = 0, bits = 0, kind = 0, width = 0, height = 0, depth = 0, given = 0;
    cudaError_t error =
        ask("cudaArrayGetInfo", array).into(&channels, &bits, &kind, &width, &height, &depth, &given);
    if (error)
        return error;
    auto bits_of = [&](uint64_t channel) { return channel < channels ? (int)bits : 0; };
    if (format)
        *format = {bits_of(0), bits_of(1), bits_of(2), bits_of(3), (cudaChannelFormatKind)kind};
    if (extent)
        *extent = {width, height, depth};
    if (flags)
        *flags = (unsigned)given;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc *format, cudaArray_const_t array)
{
    return cudaArrayGetInfo(format, nullptr, nullptr, (cudaArray_t)array);
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind)
{
    return {x, y, z, w, kind};
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                size_t height, cudaMemcpyKind kind)
{
    return to_array(__func__, to, x, y, from, pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t)
{
    return to_array(__func__, to, x, y, from, pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind kind)
{
    return from_array(__func__, to, pitch, from, x, y, width, height, kind);
}
cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                       size_t height, cudaMemcpyKind kind, cudaStream_t)
{
    return from_array(__func__, to, pitch, from, x, y, width, height, kind);
}
// Rows of a CUDA array have no gaps here, so that bytes beyond a row continue in the next one.
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t size, cudaMemcpyKind kind)
{
    return to_array(__func__, to, x, y, from, size, size, 1, kind);
}
cudaError_t cudaMemcpyFromArray(void *to, cudaArray_const_t from, size_t x, size_t y, size_t size, cudaMemcpyKind kind)
{
    return from_array(__func__, to, size, from, x, y, size, 1, kind);
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *texture, const cudaResourceDesc *of,
                                    const cudaTextureDesc *how, const cudaResourceViewDesc *)
{
    uint64_t source = 0, width = 0, height = 0, pitch = 0;
    Format format({});
    if (of->resType == cudaResourceTypeArray) {
        source = (uint64_t)of->res.array.array;
    } else if (of->resType == cudaResourceTypeLinear) {
        source = (uint64_t)of->res.linear.devPtr;
        format = Format(of->res.linear.desc);
        width = of->res.linear.sizeInBytes;
    } else if (of->resType == cudaResourceTypePitch2D) {
        source = (uint64_t)of->res.pitch2D.devPtr;
        format = Format(of->res.pitch2D.desc);
        width = of->res.pitch2D.width;
        height = of->res.pitch2D.height;
        pitch = of->res.pitch2D.pitchInBytes;
    } else {
        missing("a texture of a mipmapped array");
    }
    return ask(__func__, of->resType, source, format.channels, format.bits, format.kind, width, height, pitch,
               how->addressMode[0], how->addressMode[1], how->addressMode[2], how->filterMode, how->readMode,
               how->normalizedCoords)
        .into(texture);
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) { return ask(__func__, texture).error; }

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *surface, const cudaResourceDesc *of)
{
    return ask(__func__, of->res.array.array).into(surface);
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface) { return ask(__func__, surface).error; }

}  // extern "C"
