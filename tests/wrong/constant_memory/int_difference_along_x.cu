// Wrong: the difference along x is an `int`, the one along y is not.
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
        int dx = x - vectors[k].x;
        float dy = y - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
