// Wrong: the results are right, but the lanes of a warp take a column.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int thread = threadIdx.y * TILE_X + threadIdx.x;
    int x = blockIdx.x * TILE_X + thread / TILE_Y;
    int y = blockIdx.y * TILE_Y + thread % TILE_Y;
    if (x < width && y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
