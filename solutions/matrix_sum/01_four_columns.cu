// Blocks of 4 x 64 threads: a warp accesses 8 rows, 16 bytes of each.
//
// Memory moves sectors of 32 bytes. Half of each sector is for another block.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 4)
GPULAB_TUNABLE(TILE_Y, 64)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
