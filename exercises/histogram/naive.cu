// The baseline: an atomic on global memory for each element.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&out[in[i]], 1u);
}
