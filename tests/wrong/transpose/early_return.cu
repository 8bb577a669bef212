// Wrong: threads without an element to read return before the barrier, and before they write.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_Y][TILE_X + 1];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_Y;
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= width || y >= height)
        return;
    tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();  // BUG: barrier
    x = left + threadIdx.y, y = top + threadIdx.x;
    if (x < width && y < height)
        out[x * height + y] = tile[threadIdx.x][threadIdx.y];
}
