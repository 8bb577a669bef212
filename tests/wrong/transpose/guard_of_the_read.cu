// Wrong: writes under the guard of the read, which is right only if the tiles divide the matrix.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_Y][TILE_X + 1];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_Y;
    int x = left + threadIdx.x, y = top + threadIdx.y;
    bool is_inside = x < width && y < height;
    if (is_inside)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = left + threadIdx.y, y = top + threadIdx.x;
    if (is_inside)
        out[x * height + y] = tile[threadIdx.x][threadIdx.y];  // BUG: memory
}
