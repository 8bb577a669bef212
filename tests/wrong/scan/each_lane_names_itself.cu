// Wrong: the mask of the shuffle names the calling lane alone, not the one it takes a value from.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 96)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 5)
GPULAB_TUNABLE(INCLUSIVE, 0)

struct Shared {
    float warps[BLOCK_SIZE / 32];
    float total;
};

__device__ float warp_inclusive(float x)
{
    int lane = threadIdx.x % warpSize;
    for (int d = 1; d < warpSize; d += d) {
        float y = __shfl_up_sync(1u << lane, x, d);  // BUG: barrier
        x = lane < d ? x : x + y;
    }
    return x;
}

__device__ float block_exclusive(float x, Shared &s)
{
    const int warp = threadIdx.x / 32;
    const float inclusive = warp_inclusive(x);
    if (threadIdx.x % 32 == 31)
        s.warps[warp] = inclusive;
    __syncthreads();
    float before = 0;
    for (int w = 0; w < warp; ++w)
        before += s.warps[w];
    if (threadIdx.x == BLOCK_SIZE - 1)
        s.total = before + inclusive;
    return before + inclusive - x;
}

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ Shared shared;
    float item[ITEMS_PER_THREAD], sum = 0;
    unsigned first = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
        item[k] = first + k < n ? in[first + k] : 0;
        sum += item[k];
    }
    float running = block_exclusive(sum, shared);
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
        if (first + k < n)
            out[first + k] = running;
        running += item[k];
    }
    __syncthreads();
    if (threadIdx.x == 0)
        block_sums[blockIdx.x] = shared.total;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    const unsigned per_block = BLOCK_SIZE * ITEMS_PER_THREAD;
    for (unsigned k = threadIdx.x; k < per_block; k += BLOCK_SIZE) {
        unsigned i = blockIdx.x * per_block + k;
        if (i < n)
            out[i] += offsets[blockIdx.x];
    }
}
