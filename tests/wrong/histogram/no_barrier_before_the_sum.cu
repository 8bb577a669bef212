// Wrong: a warp may add the bins to global memory before another one has counted.
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
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)  // BUG: race
            atomicAdd(&out[bin], bins[bin]);
}
