// Wrong: each element of vectors has the size of two vectors.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float4 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k)
        sum += (x - vectors[k].x) * (x - vectors[k].x) + (y - vectors[k].y) * (y - vectors[k].y);
    out[y * width + x] = sum;
}
