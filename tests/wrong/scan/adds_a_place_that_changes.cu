// Wrong: add_offsets takes the last element of the block before from `out`, which that block is changing meanwhile.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 64)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        const float left = t >= step ? tile[t - step] : 0;
        __syncthreads();
        tile[t] += left;
        __syncthreads();
    }
    if (i < n)
        out[i] = tile[t];
    if (t == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = tile[t];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += out[blockIdx.x * BLOCK_SIZE - 1];  // BUG: race
}
