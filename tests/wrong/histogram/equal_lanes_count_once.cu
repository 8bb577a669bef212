// Wrong: of the lanes with the same value, one counts, and it counts 1.
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
        if (__ffs(__match_any_sync(__activemask(), in[i])) - 1 == threadIdx.x % 32)
            atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin]);
}
