// Honest: all threads of the grid share out the elements as if they were one line; tall blocks, no index in x or y.
#include <gpulab.cuh>
#define TILE_X 8
const int TILE_Y = 64;

__global__ void matrix_sum(const float *left, const float *right, float *sum, int width, int height)
{
    int block = blockIdx.y * gridDim.x + blockIdx.x, threads = TILE_X * TILE_Y;
    for (long long i = (long long)block * threads + threadIdx.y * TILE_X + threadIdx.x; i < (long long)width * height;
         i += (long long)threads * gridDim.x * gridDim.y)
        sum[i] = __fadd_rn(left[i], right[i]);
}
