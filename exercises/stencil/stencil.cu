// Stencil: write the kernel, then delete the GPULAB_TODO line. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO(stencil)

GPULAB_TUNABLE(TILE_X, 16)  // threads per block along x: 1, 2, 4, 8, 16 or 32
GPULAB_TUNABLE(TILE_Y, 16)  // threads per block along y: 1, 2, 4, 8, 16 or 32

constexpr int RADIUS = 5;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    // Write to out[y * width + x] the sum of in[v * width + u], with |u - x| <= RADIUS and |v - y| <= RADIUS.
}
