// The baseline: an atomic on global memory per element.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void $name(const unsigned *in, unsigned *out, int n)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&out[in[i]], 1u);
}
