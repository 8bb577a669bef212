// Wrong: includes a header that is not there, such as another submission.
#include <gpulab.cuh>
#include "solution.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
}
