// Wrong: with fewer elements than threads the step is 0, so the loop over the elements does not end.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned step = n / BLOCK_SIZE * BLOCK_SIZE;
    for (unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x; i < n; i += step) {
        const float x = in[i];
        out[i] = take_path(i % 2, x);
    }
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}
