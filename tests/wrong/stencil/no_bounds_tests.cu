// Wrong: reads outside the matrix.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

constexpr int RADIUS = 5;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int sum = 0;
    for (int v = y - RADIUS; v <= y + RADIUS; ++v)
        for (int u = x - RADIUS; u <= x + RADIUS; ++u)
            sum += in[v * width + u];  // BUG: memory
    out[y * width + x] = sum;
}
