// Wrong: a local array of the same name is read, which has no values.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    float2 vectors[64];
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - vectors[k].x, dy = y - vectors[k].y;  // BUG: uninitialised
        sum += dx * dx + dy * dy;
    }
    if (x < width && y < height)
        out[y * width + x] = sum;
}
