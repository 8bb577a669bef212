// Warp shuffle: 32 lanes scan among themselves through registers, and only one total a warp goes through shared memory.
//
// It teaches that lanes of a warp can exchange values without memory and without a block-wide barrier, which leaves one
// barrier in the whole kernel. Each thread takes four elements with one 16-byte load: fewer, wider requests.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)
GPULAB_TUNABLE(INCLUSIVE, 1)

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr unsigned WARPS = BLOCK_SIZE / 32;

__device__ float4 load4(const float *in, unsigned i, unsigned n)
{
    if (i + 3 < n)
        return *reinterpret_cast<const float4 *>(in + i);
    return make_float4(i < n ? in[i] : 0, i + 1 < n ? in[i + 1] : 0, i + 2 < n ? in[i + 2] : 0, 0);
}

__device__ void store4(float *out, unsigned i, unsigned n, float4 v)
{
    if (i + 3 < n) {
        *reinterpret_cast<float4 *>(out + i) = v;
        return;
    }
    if (i < n) out[i] = v.x;
    if (i + 1 < n) out[i + 1] = v.y;
    if (i + 2 < n) out[i + 2] = v.z;
}

// The sum over this lane and all lanes below it. Every lane takes part in every shuffle, also where it ignores the
// result.
__device__ float scan_warp(float sum)
{
    unsigned lane = threadIdx.x % 32;
    for (unsigned step = 1; step < 32; step *= 2) {
        float left = __shfl_up_sync(ALL_LANES, sum, step);
        if (lane >= step)
            sum += left;
    }
    return sum;
}

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float warp_sums[WARPS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned i = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;

    float4 v = load4(in, i, n);
    v.y += v.x;
    v.z += v.y;
    v.w += v.z;
    float upto_thread = scan_warp(v.w);
    float left_lanes = __shfl_up_sync(ALL_LANES, upto_thread, 1);  // not upto_thread - v.w, which could lose digits
    if (lane == 31)
        warp_sums[warp] = upto_thread;
    __syncthreads();

    // Every warp scans the few warp totals for itself: cheaper than a second barrier.
    float upto_warp = scan_warp(lane < WARPS ? warp_sums[lane] : 0);
    float total = __shfl_sync(ALL_LANES, upto_warp, WARPS - 1);
    float before_warp = __shfl_sync(ALL_LANES, upto_warp, warp > 0 ? warp - 1 : 0);
    float before = (warp > 0 ? before_warp : 0) + (lane > 0 ? left_lanes : 0);
    store4(out, i, n, make_float4(before + v.x, before + v.y, before + v.z, before + v.w));
    if (threadIdx.x == 0)
        block_sums[blockIdx.x] = total;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    if (blockIdx.x == 0)
        return;  // the whole block leaves, and there is no barrier below
    unsigned i = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;
    float offset = offsets[blockIdx.x - 1];
    float4 v = load4(out, i, n);
    store4(out, i, n, make_float4(v.x + offset, v.y + offset, v.z + offset, v.w + offset));
}
