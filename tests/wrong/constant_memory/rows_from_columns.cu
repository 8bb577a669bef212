// Wrong: the row is computed from the x index of the thread.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 8)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.x + threadIdx.x;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        const float dx = x - vectors[k].x, dy = y - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
