// Wrong: The sum comes from plain loads; each is combined with two reads of constant memory that cancel each other.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__device__ float2 loaded(const float2 *address)
{
    float2 v;
    unsigned one, same;
    asm volatile("ld.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(address));
    asm volatile("ld.const.u32 %0, [vectors];" : "=r"(one));
    asm volatile("ld.const.u32 %0, [vectors];" : "=r"(same));
    v.x = __uint_as_float(__float_as_uint(v.x) ^ one ^ same);
    return v;
}

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float2 v = loaded(vectors + k);
        float dx = x - v.x, dy = y - v.y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
