// Wrong: The first vector comes from constant memory, 20 times over; the others come from plain loads.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0, first;
    for (int k = 0; k < count; ++k) {
        float2 v;
        asm volatile("ld.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(vectors + k));
        asm volatile("ld.const.f32 %0, [vectors];" : "=f"(first));
        float dx = x - (k == 0 ? first : v.x), dy = y - v.y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
