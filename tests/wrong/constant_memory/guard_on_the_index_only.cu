// Wrong: tests the index in memory instead of x and y, so threads beyond the right edge write into the next row.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    const int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (y * width + x >= width * height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k)
        sum += (x - vectors[k].x) * (x - vectors[k].x) + (y - vectors[k].y) * (y - vectors[k].y);
    out[y * width + x] = sum;  // BUG: race
}
