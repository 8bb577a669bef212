// Wrong: keeps its results in a __device__ variable and hands them out again at the next launch of the same size.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

constexpr unsigned CAPACITY = 1 << 17;
__device__ float kept[CAPACITY];
__device__ unsigned kept_size[CAPACITY];

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float sums[BLOCK_SIZE];
    unsigned thread = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + thread;
    sums[thread] = i < n ? in[i] : 0;
    __syncthreads();

    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        float left = thread >= step ? sums[thread - step] : 0;
        __syncthreads();
        sums[thread] += left;
        __syncthreads();
    }
    if (i < n && kept_size[i] == n)
        out[i] = kept[i];
    else if (i < n) {
        out[i] = kept[i] = sums[thread];
        kept_size[i] = n;
    }
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sums[thread];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
