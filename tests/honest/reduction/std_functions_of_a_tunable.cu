// Honest: the standard library's functions take the tunable by reference.
#include <algorithm>
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const int t = threadIdx.x;
    const int left = std::min(BLOCK_SIZE, int(n) - int(blockIdx.x) * BLOCK_SIZE);
    tile[t] = t < left ? in[blockIdx.x * BLOCK_SIZE + t] : GPULAB_IDENTITY;
    __syncthreads();
    for (int step = std::max(1, BLOCK_SIZE / 2); step > 0; step /= 2) {
        if (t < step)
            tile[t] = GPULAB_OP(tile[t], tile[t + step]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
