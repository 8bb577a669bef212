// Wrong: each thread clears one bin, but a block has fewer threads than bins.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

constexpr int BINS = 256;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)  // BUG: uninitialised
            atomicAdd(&out[bin], bins[bin]);
}
