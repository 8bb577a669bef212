// Wrong: the difference of two unsigned numbers is compared with 0.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float sums[BLOCK_SIZE];
    const unsigned t = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + t;
    sums[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        const float before = t - step >= 0 ? sums[t - step] : 0.0f;  // BUG: memory
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    if (i < n)
        out[i] = sums[t];
    if (t == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sums[t];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
