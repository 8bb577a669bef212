// Wrong: magnitudes are added, not the elements themselves.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

constexpr int RADIUS = 5;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    __shared__ int row_sums[TILE_Y + 2 * RADIUS][TILE_X];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_Y;
    for (int row = threadIdx.y; row < TILE_Y + 2 * RADIUS; row += TILE_Y)
        for (int column = threadIdx.x; column < TILE_X + 2 * RADIUS; column += TILE_X) {
            int u = left + column - RADIUS, v = top + row - RADIUS;
            bool is_inside = u >= 0 && u < width && v >= 0 && v < height;
            tile[row][column] = is_inside ? in[v * width + u] : 0;
        }
    __syncthreads();
    for (int row = threadIdx.y; row < TILE_Y + 2 * RADIUS; row += TILE_Y) {
        int sum = 0;
        for (int dx = 0; dx <= 2 * RADIUS; ++dx)
            sum += abs(tile[row][threadIdx.x + dx]);
        row_sums[row][threadIdx.x] = sum;
    }
    __syncthreads();
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int sum = 0;
    for (int dy = 0; dy <= 2 * RADIUS; ++dy)
        sum += row_sums[threadIdx.y + dy][threadIdx.x];
    out[y * width + x] = sum;
}
