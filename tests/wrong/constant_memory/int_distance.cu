// Wrong: the differences are ints, so the fractions of the vectors are lost.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        int dx = x - vectors[k].x;
        int dy = y - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
