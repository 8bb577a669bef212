// Honest: x*x - 2*x*vx + vx*vx instead of the square of the difference, the last vector first.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = count - 1; k >= 0; --k)
        sum += x * x - 2 * x * vectors[k].x + vectors[k].x * vectors[k].x +
               (y * y - 2 * y * vectors[k].y + vectors[k].y * vectors[k].y);
    out[y * width + x] = sum;
}
