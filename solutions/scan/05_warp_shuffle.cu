// Warp shuffle: 32 lanes scan among themselves through registers. Only one total per warp goes through shared memory.
//
// Lanes of a warp exchange values without memory and without a block-wide barrier, so one barrier is left in the whole
// kernel. Each thread takes eight elements with two 16-byte loads: fewer, wider requests, and several of them in flight
// at once.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(INCLUSIVE, 1)

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr unsigned WARPS = BLOCK_SIZE / 32;
constexpr unsigned ROWS = ITEMS_PER_THREAD / 4;   // rows of BLOCK_SIZE float4, so that a warp loads 512 bytes in a row
constexpr unsigned SEGMENTS = ROWS * WARPS;       // one segment: the part of one row that one warp scans
static_assert(SEGMENTS <= 32, "one warp scans all segment totals");

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

// The sum over this lane and all lanes below it. Every lane executes every shuffle, even if it ignores the
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

__device__ unsigned first_element(unsigned row)
{
    return blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + 4 * (row * BLOCK_SIZE + threadIdx.x);
}

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float segment_sums[SEGMENTS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float4 v[ROWS];
    float before_thread[ROWS];
    for (unsigned row = 0; row < ROWS; ++row)
        v[row] = load4(in, first_element(row), n);
    for (unsigned row = 0; row < ROWS; ++row) {
        v[row].y += v[row].x;
        v[row].z += v[row].y;
        v[row].w += v[row].z;
        float upto_thread = scan_warp(v[row].w);
        float left = __shfl_up_sync(ALL_LANES, upto_thread, 1);  // not upto_thread - v.w, which could lose digits
        before_thread[row] = lane > 0 ? left : 0;
        if (lane == 31)
            segment_sums[row * WARPS + warp] = upto_thread;
    }
    __syncthreads();

    // Every warp scans the few segment totals itself, which costs less than a second barrier.
    float upto_segment = scan_warp(lane < SEGMENTS ? segment_sums[lane] : 0);
    for (unsigned row = 0; row < ROWS; ++row) {
        unsigned segment = row * WARPS + warp;
        float left = __shfl_sync(ALL_LANES, upto_segment, segment > 0 ? segment - 1 : 0);
        float before = (segment > 0 ? left : 0) + before_thread[row];
        float4 sums = make_float4(before + v[row].x, before + v[row].y, before + v[row].z, before + v[row].w);
        store4(out, first_element(row), n, sums);
    }
    if (threadIdx.x == 31)
        block_sums[blockIdx.x] = upto_segment;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    if (blockIdx.x == 0)
        return;  // the whole block returns, and no barrier follows
    float offset = offsets[blockIdx.x - 1];
    for (unsigned row = 0; row < ROWS; ++row) {
        float4 v = load4(out, first_element(row), n);
        store4(out, first_element(row), n, make_float4(v.x + offset, v.y + offset, v.z + offset, v.w + offset));
    }
}
