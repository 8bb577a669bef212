// Wrong: there is no kernel, because the function is declared for the device only.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < BLOCK_SIZE && blockIdx.x * BLOCK_SIZE + k < n; ++k)
        value = GPULAB_OP(value, in[blockIdx.x * BLOCK_SIZE + k]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}
