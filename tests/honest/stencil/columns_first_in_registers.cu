// Honest: sums of columns first, straight from global memory in a register; then neighbours in shared memory.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 1)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

__device__ int column(const int *in, int x, int y, int width, int height)
{
    return x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0;
}

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int sums[42];
    const int left = blockIdx.x * 32 - 5, top = blockIdx.y * ITEMS_PER_THREAD;
    int sum[2] = {0, 0};
    for (int half = 0; half < 2; ++half)
        for (int y = top - 5; y < top + 5; ++y)
            sum[half] += threadIdx.x + 32 * half < 42 ? column(in, left + threadIdx.x + 32 * half, y, width, height) : 0;
    for (int y = top; y < min(height, top + ITEMS_PER_THREAD); ++y) {
        for (int half = 0; half < 2; ++half)
            if (const int k = threadIdx.x + 32 * half; k < 42) {
                sum[half] += column(in, left + k, y + 5, width, height);
                sums[k] = sum[half];
                sum[half] -= column(in, left + k, y - 5, width, height);
            }
        __syncwarp();
        int total = 0;
        for (int k = 0; k < 11; ++k)
            total += sums[threadIdx.x + k];
        if (left + 5 + threadIdx.x < width)
            out[y * width + left + 5 + threadIdx.x] = total;
        __syncwarp();
    }
}
