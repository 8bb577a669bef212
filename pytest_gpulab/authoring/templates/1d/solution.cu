// One thread per element: neighbouring threads access neighbouring elements.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void $name(const float *in, float *out, int n)
{
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = in[i] * in[i] + in[i + 1 < n ? i + 1 : 0];
}
