// Wrong: the block size is a macro of the student's own, which the grader cannot read.
#include <gpulab.cuh>

#define BLOCK_SIZE 256

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < BLOCK_SIZE && blockIdx.x * BLOCK_SIZE + k < n; ++k)
        value = GPULAB_OP(value, in[blockIdx.x * BLOCK_SIZE + k]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}
