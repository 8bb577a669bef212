// Wrong: the coordinates of vectors keep 8 binary digits, as a bfloat16 does.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__constant__ float2 vectors[64];

__device__ float rounded(float v)
{
    return __uint_as_float(__float_as_uint(v) & 0xffff0000u);
}

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k)
        sum += (x - rounded(vectors[k].x)) * (x - rounded(vectors[k].x)) +
               (y - rounded(vectors[k].y)) * (y - rounded(vectors[k].y));
    out[y * width + x] = sum;
}
