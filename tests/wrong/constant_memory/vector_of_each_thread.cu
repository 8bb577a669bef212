// Wrong: each thread takes the vector of its own number in the block, for every term.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 8)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float2 vector = vectors[threadIdx.y * TILE_X + threadIdx.x];
    float sum = 0;
    for (int k = 0; k < count; ++k)
        sum += (x - vector.x) * (x - vector.x) + (y - vector.y) * (y - vector.y);
    out[y * width + x] = sum;
}
