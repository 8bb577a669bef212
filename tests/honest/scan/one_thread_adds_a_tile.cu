// Honest: one thread adds up all elements of a tile in order; a total is collected by atomics in any order.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 64)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)
GPULAB_TUNABLE(INCLUSIVE, 0)

constexpr unsigned TILE = BLOCK_SIZE * ITEMS_PER_THREAD;

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float total;
    unsigned first = blockIdx.x * TILE;
    if (threadIdx.x == 0) {
        total = 0;
        float sum = 0;
        for (unsigned i = first; i < first + TILE && i < n; ++i) {
            out[i] = sum;
            sum += in[i];
        }
    }
    __syncthreads();
    for (unsigned i = first + threadIdx.x; i < first + TILE && i < n; i += BLOCK_SIZE)
        atomicAdd(&total, in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        block_sums[blockIdx.x] = total;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    for (unsigned i = blockIdx.x * TILE + threadIdx.x; i < (blockIdx.x + 1) * TILE && i < n; i += BLOCK_SIZE)
        out[i] += offsets[blockIdx.x];
}
