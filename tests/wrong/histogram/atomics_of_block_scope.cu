// Wrong: blocks add to the same element by an atomic that is one for the threads of a block only.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    int t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    for (int b = t; b < 256; b += BLOCK_SIZE)
        bins[b] = 0;
    __syncthreads();
    if (i < n)
        atomicAdd_block(&bins[in[i]], 1u);
    __syncthreads();
    for (int b = t; b < 256; b += BLOCK_SIZE)
        atomicAdd_block(&out[b], bins[b]);  // BUG: race
}
