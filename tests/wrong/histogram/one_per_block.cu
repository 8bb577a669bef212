// Wrong: each block adds 1 to a bin, not its count.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

#define BINS 256

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        bins[b] = 0;
    __syncthreads();
    int first = blockIdx.x * blockDim.x * ITEMS_PER_THREAD + threadIdx.x;
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        int i = first + item * blockDim.x;
        if (i < n)
            atomicAdd(&bins[in[i]], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        if (bins[b] != 0)
            atomicAdd(&out[b], 1u);
}
