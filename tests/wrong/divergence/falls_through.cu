// Wrong: two cases of the switch lack their break, and fall through to the next path.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = i % 2 == 0 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        switch (i % 8) {
        case 0: out[i] = path0(in[i]);
        case 1: out[i] = path1(in[i]);
        case 2: out[i] = path2(in[i]); break;
        default: out[i] = take_path(i % 8, in[i]);
        }
}
