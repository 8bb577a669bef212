// Divergence: send element i of `in` down path i % 2, or i % 8. README.md has the task and the grading.
#include <gpulab.cuh>
#include "paths.cuh"

// Delete these two lines when you begin: while one of them is here, the exercise is not started.
GPULAB_TODO(transform2)
GPULAB_TODO(transform8)

// Threads per block: 32, 64, 128, 256, 512 or 1024.
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
