// Wrong: Columns of the tile have bank conflicts; needless reads without conflicts lower the average. Their sum is 0.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[32][34];
    __shared__ volatile float numbers[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y, next = threadIdx.x ^ 1;
    numbers[threadIdx.y][threadIdx.x] = threadIdx.x;
    if (x < width && y < height)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    float zero = 0;
    for (int k = 0; k < 10; ++k)
        zero += numbers[threadIdx.y][next] - next;
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    if (x < height && y < width)
        out[y * height + x] = tile[threadIdx.x][threadIdx.y] + zero;
}
