// Wrong: the vectors are read once into shared memory; the reads in the loop are compared with them and carry nothing.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    __shared__ float2 copied[64];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    int t = threadIdx.y * TILE_X + threadIdx.x;
    if (t == 0)
        for (int k = 0; k < count; ++k)
            copied[k] = vectors[k];
    __syncthreads();
    if (x >= width || y >= height)
        return;
    float sum = 0;
    bool same = true;
    for (int k = 0; k < count; ++k) {
        float dx = x - copied[k].x, dy = y - copied[k].y;
        sum += dx * dx + dy * dy;
        same &= vectors[k].x == copied[k].x;
    }
    out[y * width + x] = same ? sum : -1;
}
