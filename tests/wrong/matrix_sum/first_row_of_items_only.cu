// Wrong: declares four rows per thread, but computes one of them.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y * ITEMS_PER_THREAD + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
