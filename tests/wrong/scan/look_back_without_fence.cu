// Wrong: no fence between a tile's sum and the flag that announces it: another block may see the flag alone.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

__device__ void publish(float *values, unsigned long long *status, unsigned tile, float value, unsigned long long meaning)
{
    *(volatile float *)(values + tile) = value;
    *(volatile unsigned long long *)(status + tile) = meaning;
}

// One thread walks back over the tiles before: 1 announces a tile's own sum, 2 that of all up to it.
__device__ float sum_before(const unsigned long long *status, const float *sums, const float *prefixes, unsigned tile)
{
    float before = 0;
    while (tile-- > 0) {
        unsigned long long state;
        do
            state = *(const volatile unsigned long long *)(status + tile);
        while (state == 0);
        __threadfence();
        before += *(const volatile float *)((state == 2 ? prefixes : sums) + tile);  // BUG: race
        if (state == 2)
            break;
    }
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
    if (t == 0) {
        const float all = upto[BLOCK_SIZE - 1];
        publish(aggregates, status, my_tile, all, 1);
        before = sum_before(status, aggregates, prefixes, my_tile);
        publish(prefixes, status, my_tile, before + all, 2);
    }
    __syncthreads();
    const float offset = before + (t > 0 ? upto[t - 1] : 0);
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        if (first + k < n)
            out[first + k] = offset + mine[k];
}
