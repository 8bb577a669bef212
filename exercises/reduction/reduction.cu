// Reduction: combine all n values of `in` into one. README.md says what is asked and how it is graded.
#include <gpulab.cuh>

// Delete this line when you begin: as long as it is here the exercise counts as not started.
GPULAB_TODO(reduce)

// Threads a block: 32, 64, 128, 256, 512 or 1024.
GPULAB_TUNABLE(BLOCK_SIZE, 256)

// Launched with ceil(n / BLOCK_SIZE) blocks of BLOCK_SIZE threads. Leave in out[blockIdx.x] what GPULAB_OP makes of
// the elements that belong to this block; the last block may have fewer than the others.
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
}
