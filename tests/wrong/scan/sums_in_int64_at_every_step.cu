// Wrong: the sums are correct in fixed point, but a step-doubling scan is not work-efficient in any type.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ long long sums[BLOCK_SIZE];
    unsigned thread = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + thread;
    sums[thread] = i < n ? llrintf(in[i] * 16777216) : 0;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        
        long long left = thread >= step ? sums[thread - step] : 0;
        __syncthreads();
        sums[thread] += left;
        __syncthreads();
    }
    float sum = sums[thread] / 16777216.0f;
    if (i < n)
        out[i] = sum;
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sum;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
