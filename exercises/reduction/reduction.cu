// Reduction: combine all n values of `in` into one. README.md has the task and the grading.
#include <gpulab.cuh>

// Delete this line when you begin: while it is here, the exercise is not started.
GPULAB_TODO(reduce)

// Threads per block: 32, 64, 128, 256, 512 or 1024.
GPULAB_TUNABLE(BLOCK_SIZE, 256)

// Launched with ceil(n / BLOCK_SIZE) blocks of BLOCK_SIZE threads. Write to out[blockIdx.x] the
// GPULAB_OP of this block's elements; the last block may have fewer than the others.
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
}
