// Wrong: x and y are swapped in the distances.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 8)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        const float dx = y - vectors[k].x, dy = x - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
