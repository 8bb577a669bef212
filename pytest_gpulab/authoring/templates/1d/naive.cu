// The baseline: one thread in eight computes eight neighbouring elements, so that accesses are not coalesced.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void $name(const float *in, float *out, int n)
{
    int first = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (first % 8 != 0)
        return;
    for (int i = first; i < first + 8 && i < n; ++i)
        out[i] = in[i] * in[i] + in[(i + 1) % n];
}
