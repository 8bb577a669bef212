// The baseline: reads are coalesced, but the lanes of a warp write to 32 different rows.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[x * height + y] = in[y * width + x];
}
