// Wrong: Neighbours swap their values through shared memory, without a bank conflict; the writes are not coalesced.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_Y][TILE_X];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x ^= 1;
    if (x < width && y < height)
        out[x * height + y] = tile[threadIdx.y][threadIdx.x ^ 1];
}
