// Wrong: a block adds its counts to `out` without the bits above the lowest eight.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 32)

constexpr int BINS = 256;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        bins[bin] = 0;
    __syncthreads();
    int first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        int i = first + item * BLOCK_SIZE;
        if (i < n)
            atomicAdd(&bins[in[i]], 1u);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin] & 255);
}
