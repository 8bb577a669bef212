// Constant memory with an index that differs between lanes: each thread starts at another vector.
//
// Constant memory does not suit this access. The results are correct, but the constant cache serves one address at a
// time: 20 different addresses in a warp take 20 passes, and the gain over the baseline is gone. Use shared memory
// where lanes need different words.
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
    for (int k = 0; k < count; ++k) {
        float2 v = vectors[(k + 7 * x) % count];
        float dx = x - v.x;
        float dy = y - v.y;
        sum += dx * dx + dy * dy;
    }
    out[y * width + x] = sum;
}
