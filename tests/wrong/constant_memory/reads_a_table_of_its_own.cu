// Wrong: The vectors lie in global memory; what is read from constant memory is a table of ones.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__device__ float2 vectors[64];
__constant__ volatile float ones[4] = {1, 1, 1, 1};

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - vectors[k].x, dy = y - vectors[k].y;
        sum += (dx * dx + dy * dy) * ones[k & 3];
    }
    out[y * width + x] = sum;
}
