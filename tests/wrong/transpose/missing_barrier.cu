// Wrong: no barrier between the writes to the tile and the reads by other threads.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_Y][TILE_X + 1];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_Y;
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x < width && y < height)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    x = left + threadIdx.y, y = top + threadIdx.x;
    if (x < width && y < height)
        out[x * height + y] = tile[threadIdx.x][threadIdx.y];  // BUG: race
}
