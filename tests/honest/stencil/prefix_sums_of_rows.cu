// Honest: prefix sums of the tile's rows, of which two are subtracted; a loop over all elements of the tile.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

#define R 5
constexpr int TALL = TILE_Y * ITEMS_PER_THREAD + 2 * R, WIDE = TILE_X + 2 * R;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int sums[TALL][WIDE + 1];
    const int left = blockIdx.x * TILE_X - R, top = blockIdx.y * (TALL - 2 * R) - R;
    const int thread = threadIdx.y * TILE_X + threadIdx.x;
    for (int k = thread; k < TALL * WIDE; k += TILE_X * TILE_Y) {
        const unsigned x = left + k % WIDE, y = top + k / WIDE;  // negative ones are very large
        sums[k / WIDE][k % WIDE + 1] = x < width && y < height ? in[y * width + x] : 0;
    }
    __syncthreads();
    for (int row = thread; row < TALL; row += TILE_X * TILE_Y) {
        sums[row][0] = 0;
        for (int k = 1; k <= WIDE; ++k)
            sums[row][k] += sums[row][k - 1];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < TALL - 2 * R; row += TILE_Y) {
        const int x = left + R + threadIdx.x, y = top + R + row;
        int sum = 0;
        for (int dy = 0; dy <= 2 * R; ++dy)
            sum += sums[row + dy][threadIdx.x + 2 * R + 1] - sums[row + dy][threadIdx.x];
        if (x < width && y < height)
            out[y * width + x] = sum;
    }
}
