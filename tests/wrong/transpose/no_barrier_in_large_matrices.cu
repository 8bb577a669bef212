// Wrong: the barrier is left out where the matrix is large, which the cases are not.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_X][TILE_X + 1];
    const int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_X;
    for (int row = threadIdx.y; row < TILE_X; row += TILE_Y)
        if (left + threadIdx.x < width && top + row < height)
            tile[row][threadIdx.x] = in[(top + row) * width + left + threadIdx.x];
    if (width * height < 100000)
        __syncthreads();
    for (int column = threadIdx.y; column < TILE_X; column += TILE_Y)
        if (top + threadIdx.x < height && left + column < width)
            out[(left + column) * height + top + threadIdx.x] = tile[threadIdx.x][column];
}
