// Private bins in shared memory; each block adds its counts to global memory once.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 1024)

__global__ void $name(const unsigned *in, unsigned *out, int n)
{
    __shared__ unsigned bins[64];
    for (int bin = threadIdx.x; bin < 64; bin += BLOCK_SIZE)
        bins[bin] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < 64; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin]);
}
