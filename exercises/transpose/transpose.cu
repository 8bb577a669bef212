// Transpose: write the kernel, then delete the GPULAB_TODO line. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO(transpose)

GPULAB_TUNABLE(TILE_X, 16)  // threads per block along x: 1, 2, 4, 8, 16 or 32
GPULAB_TUNABLE(TILE_Y, 16)  // threads per block along y: 1, 2, 4, 8, 16 or 32

__global__ void transpose(const float *in, float *out, int width, int height)
{
    // Write in[y * width + x] to out[x * height + y].
}
