// Wrong: Each block waits for the prefix of the block before it, and sets its flag without a fence after its own prefix.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

// Waits for the block before, adds this block's sum to its prefix, and lets the next block go on.
__device__ float chained(volatile unsigned long long *ready, float *prefixes, unsigned tile, float sum)
{
    float before = 0;
    if (tile > 0) {
        while (ready[tile - 1] == 0)
            ;
        __threadfence();
        before = prefixes[tile - 1];  // BUG: race
    }
    prefixes[tile] = before + sum;
    ready[tile] = 1;
    return before;
}

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ unsigned my_tile;
    __shared__ float upto[BLOCK_SIZE], before;
    const unsigned t = threadIdx.x;
    if (t == 0)
        my_tile = atomicAdd(ticket, 1);
    __syncthreads();
    const unsigned first = (my_tile * BLOCK_SIZE + t) * ITEMS_PER_THREAD;
    float mine[ITEMS_PER_THREAD], sum = 0;
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        mine[k] = sum += first + k < n ? in[first + k] : 0;
    upto[t] = sum;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        const float left = t >= step ? upto[t - step] : 0;
        __syncthreads();
        upto[t] += left;
        __syncthreads();
    }
    if (t == 0)
        before = chained(status, prefixes, my_tile, upto[BLOCK_SIZE - 1]);
    __syncthreads();
    const float offset = before + (t > 0 ? upto[t - 1] : 0);
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        if (first + k < n)
            out[first + k] = offset + mine[k];
}
