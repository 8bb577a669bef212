// Wrong: threads below the lower edge write beyond the array.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width)
        out[y * width + x] = a[y * width + x] + b[y * width + x];  // BUG: memory
}
