// The given kernel of this exercise: do not change it. The grader runs its own copy of it.
#pragma once

// The operation and its identity element. The grader also runs the kernel with another operation.
#ifndef COMBINE
#define COMBINE(a, b) ((a) + (b))
#define IDENTITY 0
#endif

constexpr unsigned MAX_BLOCK_SIZE = 1024;

// Each block combines blockDim.x elements of `in` into one value, out[blockIdx.x]. The last block may have fewer
// elements. blockDim.x must be a power of two, at most MAX_BLOCK_SIZE. `in` and `out` must not overlap.
__global__ void reduce(const int *in, int *out, unsigned n)
{
    __shared__ int tile[MAX_BLOCK_SIZE];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    tile[threadIdx.x] = i < n ? in[i] : IDENTITY;
    __syncthreads();
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            tile[threadIdx.x] = COMBINE(tile[threadIdx.x], tile[threadIdx.x + stride]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = tile[0];
}
