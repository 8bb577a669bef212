// A tile with a halo in shared memory: outside of the matrix it holds zeros, so the sum needs no bounds tests.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

constexpr int RADIUS = 5;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    int left = blockIdx.x * TILE_X, top = blockIdx.y * TILE_Y;
    for (int row = threadIdx.y; row < TILE_Y + 2 * RADIUS; row += TILE_Y)
        for (int column = threadIdx.x; column < TILE_X + 2 * RADIUS; column += TILE_X) {
            int u = left + column - RADIUS, v = top + row - RADIUS;
            bool is_inside = u >= 0 && u < width && v >= 0 && v < height;
            tile[row][column] = is_inside ? in[v * width + u] : 0;
        }
    __syncthreads();
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int sum = 0;
    for (int dy = 0; dy <= 2 * RADIUS; ++dy)
        for (int dx = 0; dx <= 2 * RADIUS; ++dx)
            sum += tile[threadIdx.y + dy][threadIdx.x + dx];
    out[y * width + x] = sum;
}
