// Wrong: each warp leaves its sum for the next one, but no thread sets the element that the first warp reads to zero.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

constexpr unsigned WARPS = BLOCK_SIZE / 32;

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float before_warp[WARPS + 1];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float sum = i < n ? in[i] : 0;
    for (unsigned step = 1; step < 32; step *= 2) {
        float left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += left;
    }
    if (lane == 31)
        before_warp[warp + 1] = sum;
    __syncthreads();
    for (unsigned other = 0; other <= warp; ++other)
        sum += before_warp[other];  // BUG: uninitialised
    if (i < n)
        out[i] = sum;
    if (threadIdx.x == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sum;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}
