// Wrong: shuffles and registers add up the squares; the values in shared memory cancel each other out.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 4)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

__device__ int at(const int *in, int x, int y, int width, int height)
{
    return x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0;
}

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ volatile int one[4][32], copy1[4][32], two[4][32], copy2[4][32];
    int lane = threadIdx.x, row = threadIdx.y, x = blockIdx.x * 32 + lane;
    int y0 = (blockIdx.y * 4 + row) * 8;
    int rows[18];
    for (int r = 0; r < 18; r++) {
        int left = at(in, x - 32, y0 + r - 5, width, height);
        int mid = at(in, x, y0 + r - 5, width, height), right = at(in, x + 32, y0 + r - 5, width, height);
        rows[r] = mid;
        for (int d = 1; d <= 5; d++) {
            int a = __shfl_sync(~0u, mid, lane + d), b = __shfl_sync(~0u, right, lane + d);
            int c = __shfl_sync(~0u, mid, lane - d), e = __shfl_sync(~0u, left, lane - d);
            rows[r] += (lane + d < 32 ? a : b) + (lane >= d ? c : e);
        }
    }
    one[row][lane] = copy1[row][lane] = rows[9];
    two[row][lane] = rows[3];
    copy2[row][lane ^ 16] = ~__shfl_xor_sync(~0u, rows[3], 16);  // another thread writes the complement
    __syncthreads();
    int total = 0;
    for (int k = 1; k < 3; k++)
        total += one[row][lane ^ k] - copy1[row][lane ^ k] + 3 * (two[row][lane ^ k] + copy2[row][lane ^ k] + 1);
    for (int r = 0; r < 10; r++)
        total += rows[r];
    for (int k = 0; k < 8; k++) {
        total += rows[k + 10];
        if (x < width && y0 + k < height)
            out[(y0 + k) * width + x] = total;
        total -= rows[k];
    }
}
