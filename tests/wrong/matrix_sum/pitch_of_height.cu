// Wrong: takes the height for the length of a row, which is right for squares only.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[y * height + x] = a[y * height + x] + b[y * height + x];  // BUG: memory
}
