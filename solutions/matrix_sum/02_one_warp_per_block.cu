// Blocks of 32 x 1 threads: every access is coalesced, but a block is a single warp.
//
// An SM holds at most 32 blocks, so half of its 64 warps. And starting a million blocks takes longer than the sums.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 1)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
