// Copies of boxes of bytes, also to and from CUDA arrays.
#pragma once
#include "connection.h"

namespace gpulab {

// One side of a copy: rows of bytes; `pitch` is between two rows, `slice` between two slices.
struct Side {
    uint64_t address;
    size_t pitch, slice;
};
struct Box {
    size_t width, height, depth;
};

bool move_row(uint64_t direction, uint64_t to, uint64_t from, size_t size);
constexpr uint64_t DONE = 0, TO_DEVICE = 1;

GPULAB_INLINE cudaError_t copy_box(const char *name, Side to, Side from, Box box, cudaMemcpyKind kind)
{
    if (!box.width || !box.height || !box.depth)
        return cudaSuccess;
    uint64_t direction = 0;
    cudaError_t error = ask(name, to.address, to.pitch, to.slice, from.address, from.pitch, from.slice, box.width,
                            box.height, box.depth, kind)
                            .into(&direction, &to.address, &from.address);
    if (error || direction == DONE)
        return error;
    if (to.pitch == box.width && from.pitch == box.width) {  // rows without gaps
        box.width *= box.height;
        box.height = 1;
    }
    for (size_t z = 0; z < box.depth; z++)
        for (size_t y = 0; y < box.height; y++)
            if (!move_row(direction, to.address + z * to.slice + y * to.pitch,
                          from.address + z * from.slice + y * from.pitch, box.width))
                return ask("host_pointer", name, direction == TO_DEVICE ? from.address : to.address).error;
    return cudaSuccess;
}

// A place in a CUDA array, whose texels are in device memory, row by row.
struct ArrayPlace {
    Side side;
    size_t texel;  // bytes
    cudaError_t error;

    ArrayPlace(cudaArray_const_t array, size_t x_bytes, size_t y, size_t z);
};

}  // namespace gpulab
