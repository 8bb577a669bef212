// The baseline: the vectors are in global memory, and the sum is accumulated in the result, which is there, too. The
// compiler cannot know that out and vectors do not overlap, so every step reads and writes global memory.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__device__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int i = y * width + x;
    out[i] = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - vectors[k].x;
        float dy = y - vectors[k].y;
        out[i] += dx * dx + dy * dy;
    }
}
