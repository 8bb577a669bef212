// Wrong: the results are right, but the reads of a warp are in 32 rows.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 8)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    int thread = threadIdx.y * TILE_X + threadIdx.x;
    int x = blockIdx.x * TILE_X + thread / TILE_Y;
    int y = blockIdx.y * TILE_Y + thread % TILE_Y;
    if (x < width && y < height)
        out[x * height + y] = in[y * width + x];
}
