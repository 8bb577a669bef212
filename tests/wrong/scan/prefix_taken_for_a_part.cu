// Wrong: looks back beyond a tile with a known prefix.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

// One word per tile: 1 and its sum, or 2 and the sum of all up to it.
__device__ void publish(unsigned long long *status, unsigned tile, unsigned long long what, float sum)
{
    *(volatile unsigned long long *)(status + tile) = what << 32 | __float_as_uint(sum);
}

__device__ float sum_before(const unsigned long long *status, unsigned tile)
{
    float sum = 0;
    for (int seen = (int)tile - 1; seen >= 0; --seen) {
        unsigned long long word;
        do
            word = *(const volatile unsigned long long *)(status + seen);
        while (word >> 32 == 0);
        sum += __uint_as_float((unsigned)word);
        if (word >> 32 == 3)
            break;
    }
    return sum;
}

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ float sums[BLOCK_SIZE];
    __shared__ unsigned my_ticket;
    __shared__ float before;
    unsigned thread = threadIdx.x;
    if (thread == 0)
        my_ticket = atomicAdd(ticket, 1);
    __syncthreads();
    unsigned tile = my_ticket, i = tile * BLOCK_SIZE + thread;
    sums[thread] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        float left = thread >= step ? sums[thread - step] : 0;
        __syncthreads();
        sums[thread] += left;
        __syncthreads();
    }
    if (thread == 0) {
        float total = sums[BLOCK_SIZE - 1];
        publish(status, tile, tile == 0 ? 2 : 1, total);
        before = sum_before(status, tile);
        if (tile > 0)
            publish(status, tile, 2, before + total);
    }
    __syncthreads();
    if (i < n)
        out[i] = before + sums[thread];
}
