// Wrong: blocks that come late waste time, so that not all blocks can run; the others leave out a quarter.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
__constant__ float2 vectors[64];
__device__ unsigned tickets;

__global__ void field(float *out, int width, int height, int count)
{
    int t = threadIdx.y * 32 + threadIdx.x;
    bool large = width > 1000;
    if (large) {
        __shared__ unsigned ticket;
        if (t == 0)
            ticket = atomicAdd(&tickets, 1);
        __syncthreads();
        if (ticket >= 64)
            for (int k = 0; k < 8000; k++)
                asm volatile("" :: "r"(k));
        if (t >= 192)
            return;
        t = t / 6 * 8 + t % 6;
    }
    int x = blockIdx.x * TILE_X + t % 32, y = blockIdx.y * TILE_Y + t / 32;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; k++) {
        float dx = x - vectors[k].x, dy = y - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
