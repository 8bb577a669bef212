// Wrong: each thread puts its value into shared memory and reads it back: no bank conflict, but no other thread reads it.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ volatile float tile[TILE_Y][TILE_X];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    out[x * height + y] = tile[threadIdx.y][threadIdx.x];
}
