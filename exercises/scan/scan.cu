// Scan: write the two kernels, then delete their GPULAB_TODO lines. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO(scan_block)
GPULAB_TODO(add_offsets)

GPULAB_TUNABLE(BLOCK_SIZE, 256)      // threads per block: a multiple of 32, at most 1024
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)  // elements per thread: 1 to 16
GPULAB_TUNABLE(INCLUSIVE, 1)         // 1: out[i] = in[0] + ... + in[i];   0: without in[i]

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    // Scan this block's elements, and leave their total in block_sums[blockIdx.x].
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    // Add to this block's elements the sum of all blocks before it.
}
