// Wrong: threads beyond the edge miss the barrier, and read before the others have written.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE_Y][TILE_X];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height) {
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
        __syncthreads();  // BUG: barrier
    }
    int ox = blockIdx.y * TILE_Y + threadIdx.x, oy = blockIdx.x * TILE_X + threadIdx.y;
    if (ox < height && oy < width)
        out[oy * height + ox] = tile[threadIdx.x][threadIdx.y];  // BUG: race
}
