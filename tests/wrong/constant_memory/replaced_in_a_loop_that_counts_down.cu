// Wrong: the sum is replaced in each round, and the last round is that of the first vector.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    int line = blockIdx.y * blockDim.y + threadIdx.y;
    bool inside = pixel < width && line < height;
    if (inside) {
        float2 here = make_float2(pixel, line);
        float total = 0.0f;
        for (int k = count - 1; k >= 0; --k) {
            float2 d = make_float2(here.x - vectors[k].x, here.y - vectors[k].y);
            total = fmaf(d.x, d.x, total);
            total = fmaf(d.y, d.y, d.x * d.x);
        }
        out[line * width + pixel] = total;
    }
}
