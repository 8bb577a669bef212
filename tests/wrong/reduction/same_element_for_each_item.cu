// Wrong: the index of a thread's items lacks the number of the item; the bounds check has it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

#define WIDTH 32
#define ROWS (BLOCK_SIZE / WIDTH)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T grid[ROWS][WIDTH];
    int col = threadIdx.x % WIDTH, row = threadIdx.x / WIDTH;
    size_t base = (size_t)blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    GPULAB_T acc = GPULAB_IDENTITY;
    int k = 0;
    while (k < ITEMS_PER_THREAD && base + k * BLOCK_SIZE < n) {
        acc = GPULAB_OP(acc, in[base]);
        k++;
    }
    grid[row][col] = acc;
    __syncthreads();
    if (row == 0) {
        for (int r = 1; r < ROWS; r++)
            acc = GPULAB_OP(acc, grid[r][col]);
        for (int d = 16; d >= 1; d >>= 1) {
            GPULAB_T other = __shfl_xor_sync(0xffffffff, acc, d);
            acc = GPULAB_OP(acc, other);
        }
        if (col == 0)
            out[blockIdx.x] = acc;
    }
}
