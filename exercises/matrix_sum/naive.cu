// The baseline: a block of one column. The lanes of a warp access 32 different rows.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 1)
GPULAB_TUNABLE(TILE_Y, 256)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
