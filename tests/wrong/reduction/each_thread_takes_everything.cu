// Wrong: every thread combines the whole input, and only the first block's result is written, wherever others belong.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    GPULAB_T result = GPULAB_IDENTITY;
    for (unsigned k = 0; k < n; ++k)
        result = GPULAB_OP(result, in[k]);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        out[0] = result;
}
