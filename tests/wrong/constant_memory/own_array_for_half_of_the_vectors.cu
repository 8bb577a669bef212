// Wrong: Each thread copies all vectors into an array that has room for half of them.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    const int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float2 mine[32];
    for (int k = 0; k < count; ++k)
        mine[k] = vectors[k];  // BUG: memory
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        const float dx = x - mine[k].x, dy = y - mine[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
