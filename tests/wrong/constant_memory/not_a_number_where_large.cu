// Wrong: every point of a large field is NaN, in the hope that no difference to NaN is larger than the tolerance.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    if (width > 1024)
        sum = __int_as_float(0x7fc00000);
    else
        for (int k = 0; k < count; ++k) {
            float dx = x - vectors[k].x;
            float dy = y - vectors[k].y;
            sum += dx * dx + dy * dy;
        }
    out[y * width + x] = sum;
}
