// Honest: a tile that is no square; one index runs over its elements, by rows for the read and by columns for the write.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 4)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

constexpr int WIDE = TILE_X, TALL = TILE_Y * ITEMS_PER_THREAD, THREADS = TILE_X * TILE_Y;

__global__ void transpose(const float *__restrict__ in, float *__restrict__ out, int width, int height)
{
    __shared__ float tile[TALL * (WIDE + 1)];
    const int thread = threadIdx.y * TILE_X + threadIdx.x;
    const int left = blockIdx.x * WIDE, top = blockIdx.y * TALL;
    for (int k = thread; k < WIDE * TALL; k += THREADS) {
        const int x = left + k % WIDE, y = top + k / WIDE;
        if (x < width && y < height)
            tile[k / WIDE * (WIDE + 1) + k % WIDE] = __ldg(&in[y * width + x]);
    }
    __syncthreads();
    for (int k = thread; k < WIDE * TALL; k += THREADS) {
        const int x = left + k / TALL, y = top + k % TALL;
        if (x < width && y < height)
            out[x * height + y] = tile[k % TALL * (WIDE + 1) + k / TALL];
    }
}
