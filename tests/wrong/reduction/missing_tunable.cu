// Wrong: the block size is a constant of another name, which the grader cannot read.
#include <gpulab.cuh>

constexpr unsigned THREADS = 256;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < THREADS && blockIdx.x * THREADS + k < n; ++k)
        value = GPULAB_OP(value, in[blockIdx.x * THREADS + k]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}
