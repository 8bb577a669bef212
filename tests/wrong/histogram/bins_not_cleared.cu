// Wrong: counts in bins that hold garbage.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

constexpr int BINS = 256;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);  // BUG: uninitialised
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin]);
}
