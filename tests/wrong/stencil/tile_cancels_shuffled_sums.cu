// Wrong: shuffles add up the squares. What is read from the tile minus the same values by shuffles is added for show.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

constexpr int RADIUS = 5;

__device__ int at(const int *in, int x, int y, int width, int height)
{
    return x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0;
}

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int tile[TILE_Y][TILE_X];
    const int lane = threadIdx.x, left = blockIdx.x * TILE_X, own = left + lane - RADIUS, next = own + TILE_X;
    const int top = (blockIdx.y * TILE_Y + threadIdx.y) * ITEMS_PER_THREAD;
    int sum = 0, sum_of_next = 0;  // of a column's 11 elements
    for (int y = top - RADIUS; y < top + RADIUS; ++y) {
        sum += at(in, own, y, width, height);
        sum_of_next += at(in, next, y, width, height);
    }
    for (int y = top; y < top + ITEMS_PER_THREAD; ++y) {
        sum += at(in, own, y + RADIUS, width, height);
        sum_of_next += at(in, next, y + RADIUS, width, height);
        tile[threadIdx.y][lane] = sum;
        __syncwarp();
        int total = 0;
        for (int k = 1; k < 3; ++k) {
            const int from = (lane + k) % TILE_X;
            total += tile[threadIdx.y][from] - __shfl_sync(~0u, sum, from);
        }
        for (int k = 0; k <= 2 * RADIUS; ++k) {
            const int a = __shfl_sync(~0u, sum, lane + k), b = __shfl_sync(~0u, sum_of_next, lane + k);
            total += lane + k < TILE_X ? a : b;
        }
        __syncwarp();
        if (left + lane < width && y < height)
            out[y * width + left + lane] = total;
        sum -= at(in, own, y - RADIUS, width, height);
        sum_of_next -= at(in, next, y - RADIUS, width, height);
    }
}
