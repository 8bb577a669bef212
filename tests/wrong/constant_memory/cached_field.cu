// Wrong: keeps the field in a __device__ variable and hands it out again when the size is the same, whatever the
// vectors are.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

constexpr int CAPACITY = 256 * 256;
__device__ float kept[CAPACITY];
__device__ int kept_width[CAPACITY], kept_count[CAPACITY];

__global__ void field(float *out, int width, int height, int count)
{
    int x = blockIdx.x * TILE_X + threadIdx.x;
    int y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int k = 0; k < count; ++k) {
        float dx = x - vectors[k].x;
        float dy = y - vectors[k].y;
        sum += dx * dx + dy * dy;
    }
    int i = y * width + x;
    if (kept_width[i] != width || kept_count[i] != count) {
        kept[i] = sum;
        kept_width[i] = width;
        kept_count[i] = count;
    }
    out[i] = kept[i];
}
