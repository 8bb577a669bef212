// Wrong: the results are right and it is fast, but the vectors lie in global memory; the register is what makes it fast.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__device__ float2 vectors[64];

__global__ void field(float *__restrict__ out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float2 v = __ldg(&vectors[k]);
        float dx = x - v.x;
        float dy = y - v.y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
