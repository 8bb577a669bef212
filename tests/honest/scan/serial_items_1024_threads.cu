// Honest: 16 items per thread, one after the other, and the largest tile there is.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 1024)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)
GPULAB_TUNABLE(INCLUSIVE, 1)

constexpr unsigned TILE = BLOCK_SIZE * ITEMS_PER_THREAD;

// Each thread adds its own items one after the other; the threads' totals are scanned in shared memory.
__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float totals[BLOCK_SIZE];
    unsigned thread = threadIdx.x, first = blockIdx.x * TILE + thread * ITEMS_PER_THREAD;
    float own[ITEMS_PER_THREAD], total = 0;
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        own[k] = total += first + k < n ? in[first + k] : 0;
    totals[thread] = total;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        float left = thread >= step ? totals[thread - step] : 0;
        __syncthreads();
        totals[thread] += left;
        __syncthreads();
    }
    float before = thread > 0 ? totals[thread - 1] : 0;
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        if (first + k < n)
            out[first + k] = before + own[k];
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = totals[thread];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    if (blockIdx.x == 0)
        return;
    float offset = offsets[blockIdx.x - 1];
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k) {
        unsigned i = blockIdx.x * TILE + k * BLOCK_SIZE + threadIdx.x;
        if (i < n)
            out[i] += offset;
    }
}
