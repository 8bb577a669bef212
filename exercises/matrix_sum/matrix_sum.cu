// Matrix sum: write the kernel, then delete the GPULAB_TODO line. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO(matrix_sum)

GPULAB_TUNABLE(TILE_X, 16)  // threads per block along x: a power of two up to 1024
GPULAB_TUNABLE(TILE_Y, 16)  // threads per block along y: likewise; a block has at most 1024 threads

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    // Write a[y * width + x] + b[y * width + x] to out[y * width + x].
}
