// Wrong: threads without an element return, although they have bins to add.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

constexpr int BINS = 256;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        bins[bin] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(&bins[in[i]], 1u);
    __syncthreads();  // BUG: barrier
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin]);
}
