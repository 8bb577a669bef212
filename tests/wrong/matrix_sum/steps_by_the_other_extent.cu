// Wrong: the step along y has the extent of the grid along x: rows are left out where the grid is wider than high.
#include <gpulab.cuh>

GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

__device__ inline int at(int y, int x, int pitch) { return y * pitch + x; }

__global__ void matrix_sum(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, int width,
                           int height)
{
    const int step_x = gridDim.x * blockDim.x, step_y = gridDim.x * blockDim.y;
    for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += step_y)
        for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < width; x += step_x) {
            int i = at(y, x, width);
            out[i] = a[i] + b[i];
        }
}
