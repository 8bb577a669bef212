// Wrong: Atomic exchanges write the columns: they move as many sectors as plain stores do.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 32)

__global__ void transpose(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        atomicExch(out + x * height + y, in[y * width + x]);
}
