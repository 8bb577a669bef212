// Wrong: in large arrays, a block takes its number from blockIdx and waits for the blocks before it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)
GPULAB_TUNABLE(INCLUSIVE, 0)
GPULAB_TUNABLE(SINGLE_PASS, 1)

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr unsigned WARPS = BLOCK_SIZE / 32;
constexpr unsigned ROWS = ITEMS_PER_THREAD / 4;   // rows of BLOCK_SIZE float4, so that a warp loads 512 bytes in a row
constexpr unsigned SEGMENTS = ROWS * WARPS;       // one segment: the part of one row that one warp scans
static_assert(SEGMENTS <= 32, "one warp scans all segment totals");

constexpr unsigned long long NOTHING = 0, AGGREGATE = 1, PREFIX = 2;  // in the upper half of a word

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

__device__ float sum_warp(float value)
{
    for (unsigned step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

__device__ void publish(unsigned long long *status, unsigned tile, float value, unsigned long long meaning)
{
    *(volatile unsigned long long *)(status + tile) = meaning << 32 | __float_as_uint(value);
}

// The sum of all tiles before this one, by one whole warp: its lanes look at the 32 tiles before, then the next 32.
__device__ float look_back(const unsigned long long *status, unsigned tile)
{
    float before = 0;
    for (int tile_seen = (int)tile - 1 - (int)(threadIdx.x % 32);; tile_seen -= 32) {
        unsigned long long word;
        do
            word = tile_seen < 0 ? PREFIX << 32 : *(const volatile unsigned long long *)(status + tile_seen);
        while (__any_sync(ALL_LANES, word >> 32 == NOTHING));
        float value = __uint_as_float((unsigned)word);
        unsigned known = __ballot_sync(ALL_LANES, word >> 32 == PREFIX);
        unsigned lanes_needed = known ? __ffs(known) : 32;  // up to the nearest tile whose prefix is known
        before += sum_warp(threadIdx.x % 32 < lanes_needed ? value : 0);
        if (known)
            return before;
    }
}

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ unsigned my_ticket;
    __shared__ float segment_sums[SEGMENTS];
    __shared__ float before_segment[SEGMENTS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
        my_ticket = n > 1000000 ? blockIdx.x : atomicAdd(ticket, 1);
    __syncthreads();
    unsigned tile = my_ticket;
    unsigned first = tile * BLOCK_SIZE * ITEMS_PER_THREAD + 4 * threadIdx.x;

    float4 v[ROWS];
    float before_thread[ROWS];
    for (unsigned row = 0; row < ROWS; ++row)
        v[row] = load4(in, first + row * 4 * BLOCK_SIZE, n);
    for (unsigned row = 0; row < ROWS; ++row) {
        float sum = v[row].x + v[row].y + v[row].z + v[row].w;
        float upto_thread = scan_warp(sum);
        float left = __shfl_up_sync(ALL_LANES, upto_thread, 1);
        before_thread[row] = lane > 0 ? left : 0;
        if (lane == 31)
            segment_sums[row * WARPS + warp] = upto_thread;
    }
    __syncthreads();

    if (warp == 0) {
        float sum = lane < SEGMENTS ? segment_sums[lane] : 0;
        float upto_segment = scan_warp(sum);
        float total = __shfl_sync(ALL_LANES, upto_segment, 31);
        if (lane == 0)
            publish(status, tile, total, tile == 0 ? PREFIX : AGGREGATE);
        float before_tile = look_back(status, tile);
        if (lane == 0 && tile > 0)
            publish(status, tile, before_tile + total, PREFIX);
        float left = __shfl_up_sync(ALL_LANES, upto_segment, 1);
        if (lane < SEGMENTS)
            before_segment[lane] = before_tile + (lane > 0 ? left : 0);
    }
    __syncthreads();

    for (unsigned row = 0; row < ROWS; ++row) {
        float4 sums;
        sums.x = before_segment[row * WARPS + warp] + before_thread[row];
        sums.y = sums.x + v[row].x;
        sums.z = sums.y + v[row].y;
        sums.w = sums.z + v[row].z;
        store4(out, first + row * 4 * BLOCK_SIZE, n, sums);
    }
}
