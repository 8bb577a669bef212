// Wrong: a do-while loop that requires at least two vectors: with a single one it never meets its end
// condition.
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
    float sum = (x - vectors[0].x) * (x - vectors[0].x) + (y - vectors[0].y) * (y - vectors[0].y);
    unsigned k = 1;
#pragma unroll 1
    do {
        float dx = x - vectors[k % 64].x;
        float dy = y - vectors[k % 64].y;
        sum += dx * dx + dy * dy;
    } while (++k != count);
    out[y * width + x] = sum;
}
