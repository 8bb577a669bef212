// Warp instructions: shuffles, votes, matches, reductions; whole warps and parts of one. One row of `out` a PUT.
typedef unsigned u32;
typedef unsigned long long u64;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);
#define ALL 0xFFFFFFFFu
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;                                         \
    int lane = threadIdx.x & 31;                                \
    u32 x = data[i];

// The register form with its second result: whether the source lane was in range.
#define SHFL(text, b, c)                                                                                       \
    ([&] {                                                                                                     \
        u32 d, ok;                                                                                             \
        asm volatile("{ .reg .pred p; shfl.sync." text ".b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }"  \
                     : "=r"(d), "=r"(ok) : "r"(x), "r"(b), "r"(c));                                            \
        return d * 2 + ok;                                                                                     \
    }())

extern "C" __global__ void shuffles(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(up, __shfl_up_sync(ALL, x, 3))
    PUT(down, __shfl_down_sync(ALL, x, 5))
    PUT(xor_, __shfl_xor_sync(ALL, x, 11))
    PUT(idx, __shfl_sync(ALL, x, 7))
    PUT(idx_own, __shfl_sync(ALL, x, (lane * 5 + 3)))
    PUT(idx_out_of_range, __shfl_sync(ALL, x, 37))
    PUT(idx_negative, __shfl_sync(ALL, x, -2))
    PUT(up_8, __shfl_up_sync(ALL, x, 2, 8))
    PUT(down_8, __shfl_down_sync(ALL, x, 2, 8))
    PUT(xor_16, __shfl_xor_sync(ALL, x, 5, 16))
    PUT(xor_across, __shfl_xor_sync(ALL, x, 12, 8))
    PUT(idx_4, __shfl_sync(ALL, x, lane / 3, 4))
    PUT(up_32, __shfl_up_sync(ALL, x, 32))
    PUT(down_lane, __shfl_down_sync(ALL, x, lane))
    PUT(up_lane, __shfl_up_sync(ALL, x, (x & 31)))
    PUT(float_, __float_as_uint(__shfl_xor_sync(ALL, __uint_as_float(x), 1)))
    u64 wide = __shfl_down_sync(ALL, (u64)x * 0x100000001ull, 4);
    PUT(wide, wide >> 17)
    PUT(double_, (u32)__shfl_up_sync(ALL, (double)x, 9))
    PUT(up_pred, SHFL("up", 4, 0))
    PUT(up_pred_8, SHFL("up", 3, 0x1800))
    PUT(down_pred, SHFL("down", 6, 31))
    PUT(down_pred_16, SHFL("down", 6, 0x100F))
    PUT(bfly_pred, SHFL("bfly", 17, 31))
    PUT(bfly_pred_8, SHFL("bfly", 9, 0x1807))
    PUT(idx_pred, SHFL("idx", lane + 3, 0x1807))
    PUT(idx_pred_clamped, SHFL("idx", lane + 3, 20))
    u32 half = 0;
    if (lane < 16) half = __shfl_xor_sync(0xFFFF, x, 3);
    else half = __shfl_up_sync(0xFFFF0000, x, 1, 16);
    PUT(half_warps, half)
    u32 even = 0;
    if (lane % 2 == 0) even = __shfl_sync(0x55555555, x, lane ^ 2);
    PUT(even_lanes, even)
    u32 sum = x;
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(ALL, sum, step);
    PUT(reduce, sum)
    u32 scan = x;
    for (int step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(ALL, scan, step);
        if (lane >= step) scan += other;
    }
    PUT(scan, scan)
}

extern "C" __global__ void votes(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(all, __all_sync(ALL, x & 1))
    PUT(all_true, __all_sync(ALL, x | 1))
    PUT(any, __any_sync(ALL, (x & 0xFFF) == 0))
    PUT(any_true, __any_sync(ALL, lane == 7))
    PUT(ballot, __ballot_sync(ALL, x & 1))
    PUT(uni, __uni_sync(ALL, x & 1))
    PUT(uni_true, __uni_sync(ALL, lane < 40))
    u32 part = 0;
    if (lane >= 5) part = __ballot_sync(0xFFFFFFE0, x & 2);
    PUT(ballot_part, part)
    u32 odd = 0;
    if (lane & 1) odd = __all_sync(0xAAAAAAAA, lane & 1) * 2 + __any_sync(0xAAAAAAAA, x & 4);
    PUT(odd_lanes, odd)
    PUT(match_any, __match_any_sync(ALL, x & 3))
    PUT(match_any_64, __match_any_sync(ALL, (u64)(x & 1) << 40))
    int pred;
    u32 same = __match_all_sync(ALL, x & 1, &pred);
    PUT(match_all, same * 2 + pred)
    same = __match_all_sync(ALL, (u64)blockIdx.x, &pred);
    PUT(match_all_64, same * 2 + pred)
    u32 some = 0;
    if (lane < 20) some = __match_any_sync(0xFFFFF, x & 1);
    PUT(match_part, some)
    PUT(active, __activemask())
    u32 active = 0;
    if (lane < 9) { active = __activemask(); __syncwarp(0x1FF); }
    PUT(active_low, active)
    u32 elected;
    asm volatile("{ .reg .pred p; .reg .b32 r; elect.sync r|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    PUT(elect, elected)
}

extern "C" __global__ void reductions(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(add, __reduce_add_sync(ALL, x))
    PUT(min, __reduce_min_sync(ALL, x))
    PUT(max, __reduce_max_sync(ALL, x))
    PUT(min_s, __reduce_min_sync(ALL, (int)x))
    PUT(max_s, __reduce_max_sync(ALL, (int)x))
    PUT(add_s, __reduce_add_sync(ALL, (int)x))
    PUT(and_, __reduce_and_sync(ALL, x | 0xF0F))
    PUT(or_, __reduce_or_sync(ALL, x & 0xF0F))
    PUT(xor_, __reduce_xor_sync(ALL, x))
    u32 part = 0;
    if (lane % 3 == 1) part = __reduce_add_sync(0x92492492, x);
    PUT(part, part)
}
