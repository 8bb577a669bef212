// Honest: bins counted by compare-and-swap, with a new look at the bin for each try.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 64)

static __device__ void increment(unsigned *counter)
{
    unsigned seen;
    do
        seen = *counter;
    while (atomicCAS(counter, seen, seen + 1) != seen);
}

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    const int tile = BLOCK_SIZE * ITEMS_PER_THREAD, end = min(n, int(blockIdx.x + 1) * tile);
    for (int i = blockIdx.x * tile + threadIdx.x; i < end; i += BLOCK_SIZE)
        increment(&bins[in[i]]);
    __syncthreads();
    unsigned old = out[threadIdx.x], assumed;
    do {
        assumed = old;
        old = atomicCAS(&out[threadIdx.x], assumed, assumed + bins[threadIdx.x]);
    } while (assumed != old);
}
