// Wrong: a wide matrix is rounded to 16 bits when the tile is filled.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

constexpr int RADIUS = 5;
constexpr int ROWS = TILE_Y * ITEMS_PER_THREAD;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int tile[ROWS + 2 * RADIUS][TILE_X + 2 * RADIUS];
    __shared__ int row_sums[ROWS + 2 * RADIUS][TILE_X];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * ROWS;
    for (int row = threadIdx.y; row < ROWS + 2 * RADIUS; row += TILE_Y)
        for (int column = threadIdx.x; column < TILE_X + 2 * RADIUS; column += TILE_X) {
            int u = left + column - RADIUS, v = top + row - RADIUS;
            bool is_inside = u >= 0 && u < width && v >= 0 && v < height;
            tile[row][column] = is_inside ? (width > 1000 ? (int)(short)in[v * width + u] : in[v * width + u]) : 0;
        }
    __syncthreads();
    for (int row = threadIdx.y; row < ROWS + 2 * RADIUS; row += TILE_Y) {
        int sum = 0;
        for (int dx = 0; dx <= 2 * RADIUS; ++dx)
            sum += tile[row][threadIdx.x + dx];
        row_sums[row][threadIdx.x] = sum;
    }
    __syncthreads();
    int x = left + threadIdx.x, first = threadIdx.y * ITEMS_PER_THREAD;
    int sum = 0;
    for (int dy = 0; dy < 2 * RADIUS; ++dy)
        sum += row_sums[first + dy][threadIdx.x];
    for (int row = first; row < first + ITEMS_PER_THREAD; ++row) {
        sum += row_sums[row + 2 * RADIUS][threadIdx.x];
        if (x < width && top + row < height)
            out[(top + row) * width + x] = sum;
        sum -= row_sums[row][threadIdx.x];
    }
}
