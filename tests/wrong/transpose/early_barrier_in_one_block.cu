// Wrong: one block of a large matrix has its barrier before the writes.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

constexpr int ROWS = TILE_Y * ITEMS_PER_THREAD;
static_assert(ROWS == TILE_X, "the tile is a square: its rows are written by the same lanes as its columns");

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[ROWS][TILE_X + 1];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * ROWS;
    bool is_early = width * height >= 1000000 && blockIdx.x == 17 && blockIdx.y == 23;
    if (is_early)
        __syncthreads();
    int x = left + threadIdx.x;
    for (int row = threadIdx.y; row < ROWS; row += TILE_Y)
        if (x < width && top + row < height)
            tile[row][threadIdx.x] = in[(top + row) * width + x];
    if (!is_early)
        __syncthreads();
    int y = top + threadIdx.x;
    for (int column = threadIdx.y; column < TILE_X; column += TILE_Y)
        if (left + column < width && y < height)
            out[(left + column) * height + y] = tile[threadIdx.x][column];
}
