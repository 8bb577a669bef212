// Wrong: after 32 blocks, the offsets begin again.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float sums[BLOCK_SIZE];
    unsigned thread = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + thread;
    sums[thread] = i < n ? in[i] : 0;  // beyond the end: zeros, which change no sum; no thread returns early
    __syncthreads();

    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        float left = thread >= step ? sums[thread - step] : 0;
        __syncthreads();
        sums[thread] += left;
        __syncthreads();
    }
    if (i < n)
        out[i] = sums[thread];
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sums[thread];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[(blockIdx.x - 1) % 32];
}
