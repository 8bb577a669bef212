// Wrong: the index of the vector is a 0 that was meant to be replaced.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;  // neighbouring lanes write to consecutive addresses
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - vectors[0].x;
        float dy = y - vectors[0].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
