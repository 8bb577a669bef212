// Wrong: takes the width of all tiles together for the width of the matrix.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int pitch = gridDim.x * TILE_X;
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[y * pitch + x] = a[y * pitch + x] + b[y * pitch + x];  // BUG: memory
}
