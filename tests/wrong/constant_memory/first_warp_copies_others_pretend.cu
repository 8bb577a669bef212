// Wrong: The first warp copies the vectors to shared memory; the others read constant memory, too, and drop the values.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    __shared__ float2 copied[64];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    for (int k = 0; k < count; ++k) {
        float2 v = vectors[k];
        if (threadIdx.x == 0 && threadIdx.y == 0)
            copied[k] = v;
        asm volatile("{ .reg .f32 dropped; ld.const.f32 dropped, [vectors]; }");
    }
    __syncthreads();
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - copied[k].x, dy = y - copied[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
