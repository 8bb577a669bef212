// Honest: At most 256 blocks, each of which strides over the whole input; a partial result per warp, then one thread.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(MAX_BLOCKS, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T partials[BLOCK_SIZE / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    GPULAB_T result = GPULAB_IDENTITY;
    for (unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x; i < n; i += gridDim.x * BLOCK_SIZE)
        result = GPULAB_OP(result, in[i]);
    for (int apart = 16; apart > 0; apart /= 2)
        result = GPULAB_OP(result, __shfl_down_sync(0xFFFFFFFFu, result, apart));
    if (lane == 0)
        partials[warp] = result;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned other = 1; other < BLOCK_SIZE / 32; ++other)
            result = GPULAB_OP(result, partials[other]);
        out[blockIdx.x] = result;
    }
}
