// Honest: the column of the tile is xored with the row instead of padded; a square of 16 x 16 threads.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[16 * 16];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
    tile[ty * 16 + (tx ^ ty)] = x < width && y < height ? in[y * width + x] : 0;
    __syncthreads();
    const int row = blockIdx.x * 16 + ty, column = blockIdx.y * 16 + tx;
    if (row < width && column < height)
        out[row * height + column] = tile[tx * 16 + (ty ^ tx)];
}
