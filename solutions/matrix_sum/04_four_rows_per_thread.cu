// Four rows per thread: each thread has eight reads in flight, and there are fewer blocks to start.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int first = blockIdx.y * TILE_Y * ITEMS_PER_THREAD + threadIdx.y;
    if (x >= width)
        return;
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        int y = first + item * TILE_Y;
        if (y < height)
            out[y * width + x] = a[y * width + x] + b[y * width + x];
    }
}
