// Wrong: the bins lack `__shared__`, so each thread counts in bins of its own. The compiler stops the kernel there.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

constexpr int BINS = 256;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    unsigned bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        bins[bin] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        atomicAdd(&out[bin], bins[bin]);
}
