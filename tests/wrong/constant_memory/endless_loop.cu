// Wrong: takes two vectors a step and waits for the count to be hit exactly, which an odd count never is.
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
    for (unsigned k = 0; k != count; k += 2) {
        for (unsigned pair = 0; pair < 2; ++pair) {
            float2 v = vectors[(k + pair) % 64];
            float dx = x - v.x;
            float dy = y - v.y;
            sum += dx * dx + dy * dy;
        }
    }
    out[y * width + x] = sum;
}
