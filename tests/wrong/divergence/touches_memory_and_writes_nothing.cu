// Wrong: At the timed size a warp of each block reads every sector of both arrays, so that so many bytes are moved, and
// nothing is computed or written.
#include <gpulab.cuh>
#include "paths.cuh"
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ void touch(const float *place)
{
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(place));
}

__device__ bool touched(const float *in, const float *out, unsigned n)
{
    unsigned sector = blockIdx.x * BLOCK_SIZE + 8 * threadIdx.x;
    if (n < 1u << 18)
        return false;
    if (threadIdx.x < BLOCK_SIZE / 8) {
        touch(in + sector);
        touch(out + sector);
    }
    return true;
}

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (!touched(in, out, n) && i < n)
        out[i] = i % 2 == 0 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (!touched(in, out, n) && i < n)
        out[i] = take_path(i % 8, in[i]);
}
