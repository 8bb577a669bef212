// Wrong: The sum comes from plain loads; reads of constant memory stand beside them, and a mask makes zeros of their bits.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__device__ float2 loaded(const float2 *address)
{
    float2 v;
    asm volatile("ld.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(address));
    return v;
}

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    unsigned mask = count >> 16;  // 0, which the compiler cannot know
    for (int k = 0; k < count; ++k) {
        float2 v = loaded(vectors + k);
        float dx = x - __uint_as_float(__float_as_uint(v.x) ^ (__float_as_uint(vectors[k].x) & mask));
        float dy = y - v.y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
