// Wrong: stores an element in an `int` before it adds the other one: its fraction is lost.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 4)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    const int column = blockIdx.x * TILE_X + threadIdx.x, row = blockIdx.y * TILE_Y + threadIdx.y;
    if (column >= width || row >= height)
        return;
    const int place = row * width + column;
    int sum = a[place];
    out[place] = sum + b[place];
}
