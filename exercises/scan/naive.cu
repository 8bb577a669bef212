// The baseline: every thread adds up all elements of its block up to its own, one by one. It is easy to get right, but
// the work grows with the square of the block size: thread 255 alone does 255 additions.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    unsigned first = blockIdx.x * BLOCK_SIZE;
    unsigned i = first + threadIdx.x;
    if (i < n) {
        float sum = 0;
        for (unsigned j = first; j <= i; ++j)
            sum += in[j];
        out[i] = sum;
        if (threadIdx.x == BLOCK_SIZE - 1 || i == n - 1)
            block_sums[blockIdx.x] = sum;
    }
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
