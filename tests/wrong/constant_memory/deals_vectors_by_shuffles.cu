// Wrong: Each lane reads two vectors of its own, at as many addresses, and shuffles hand them on.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    const int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    const int lane = (threadIdx.y * TILE_X + threadIdx.x) % 32;
    const float2 low = vectors[lane], high = vectors[lane + 32];
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        const float2 from = k < 32 ? low : high;
        const float dx = x - __shfl_sync(0xffffffffu, from.x, k % 32), dy = y - __shfl_sync(0xffffffffu, from.y, k % 32);
        sum += dx * dx + dy * dy;
    }
    if (x < width && y < height)
        out[y * width + x] = sum;
}
