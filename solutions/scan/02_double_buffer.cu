// Hillis-Steele with two buffers: each step reads from one and writes to the other.
//
// This trades memory for synchronisation: no value is overwritten in the step that reads it, so one barrier per step
// suffices.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float buffers[2][BLOCK_SIZE];
    unsigned thread = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + thread;
    unsigned from = 0;
    buffers[from][thread] = i < n ? in[i] : 0;
    __syncthreads();

    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        float left = thread >= step ? buffers[from][thread - step] : 0;
        buffers[1 - from][thread] = buffers[from][thread] + left;
        from = 1 - from;
        __syncthreads();
    }
    if (i < n)
        out[i] = buffers[from][thread];
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = buffers[from][thread];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
