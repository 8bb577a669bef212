// Wrong: keeps the first result for each small size and replays it.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float known_result[64][64];
__device__ bool is_known[64][64];

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    if (n < 64 && is_known[n][i]) {
        out[i] = known_result[n][i];
        return;
    }
    out[i] = take_path(i % 2, in[i]);
    if (n < 64) {
        known_result[n][i] = out[i];
        is_known[n][i] = true;
    }
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
