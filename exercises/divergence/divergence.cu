// Divergence: send element i of `in` down path i % 2, or i % 8. README.md says what is asked and how it is graded.
#include <gpulab.cuh>
#include "paths.cuh"

// Delete these two lines when you begin: as long as one is here the exercise counts as not started.
GPULAB_TODO(transform2)
GPULAB_TODO(transform8)

// Threads a block: 32, 64, 128, 256, 512 or 1024.
GPULAB_TUNABLE(BLOCK_SIZE, 256)

// Launched with ceil(n / BLOCK_SIZE) blocks of BLOCK_SIZE threads. out[i] = path0(in[i]) where i is even, else
// path1(in[i]).
__global__ void transform2(const float *in, float *out, unsigned n)
{
}

// Launched likewise. out[i] = take_path(i % 8, in[i]).
__global__ void transform8(const float *in, float *out, unsigned n)
{
}
