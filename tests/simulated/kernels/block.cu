// Barriers of a block: counting ones, named ones, producers and consumers, warp barriers. One row of `out` a PUT.
typedef unsigned u32;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    int t = threadIdx.x;                                        \
    u32 x = data[i];

extern "C" __global__ void barriers(const u32 *data, u32 *out, int n) {
    __shared__ u32 tile[256];
    BEGIN
    PUT(count, __syncthreads_count(x & 1))
    PUT(and_, __syncthreads_and(x | 1))
    PUT(and_false, __syncthreads_and(t != 100))
    PUT(or_, __syncthreads_or(t == 200))
    PUT(or_false, __syncthreads_or(x == 12345))
    tile[t] = x;
    __syncthreads();
    PUT(reversed, tile[blockDim.x - 1 - t])
    for (int step = blockDim.x / 2; step; step >>= 1) {
        __syncthreads();
        if (t < step) tile[t] += tile[t + step];
    }
    __syncthreads();
    PUT(tree_sum, tile[0])
    __syncthreads();
    tile[t] = x & 0xFFFF;
    for (int k = 2; k <= blockDim.x; k <<= 1)  // bitonic sort
        for (int j = k >> 1; j; j >>= 1) {
            __syncthreads();
            int other = t ^ j;
            u32 a = tile[t], b = tile[other];
            __syncthreads();
            tile[t] = ((t & k) == 0) == (t < other) ? min(a, b) : max(a, b);
        }
    PUT(sorted, tile[t])
    asm volatile("barrier.sync 0;" ::: "memory");
    tile[t] = t;
    asm volatile("barrier.sync.aligned 0;" ::: "memory");
    PUT(barrier_sync, tile[(t + 64) % 256])
    u32 red;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; barrier.red.popc.u32 %0, 0, p; }" : "=r"(red) : "r"(x & 2));
    PUT(barrier_red, red)
}

// Each half of the block meets at a barrier of its own; then one half produces what the other consumes.
extern "C" __global__ void named_barriers(const u32 *data, u32 *out, int n) {
    __shared__ u32 tile[256];
    BEGIN
    tile[t] = x;
    if (t < 128) asm volatile("bar.sync 1, 128;" ::: "memory");
    else asm volatile("bar.sync 2, 128;" ::: "memory");
    PUT(own_half, tile[t ^ 127])
    __syncthreads();
    u32 piped;
    if (t < 128) {
        tile[t] = x * 3;
        asm volatile("bar.arrive 3, 256;" ::: "memory");
        piped = 1;
    } else {
        asm volatile("bar.sync 3, 256;" ::: "memory");
        piped = tile[t - 128];
    }
    PUT(piped, piped)
    asm volatile("barrier.sync %0, %1;" ::"r"(4), "r"(256) : "memory");
    u32 votes = 0;
    if (t >= 64 && t < 160)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.popc.u32 %0, 5, 96, p; }" : "=r"(votes) : "r"(x & 1));
    PUT(part_count, votes)
}

extern "C" __global__ void warp_barriers(const u32 *data, u32 *out, int n) {
    __shared__ volatile u32 tile[256];
    BEGIN
    int lane = t & 31;
    tile[t] = x;
    __syncwarp();
    PUT(neighbour, tile[t ^ 1])
    __syncwarp();
    for (int step = 16; step; step >>= 1) {
        u32 other = lane < step ? tile[t + step] : 0;
        __syncwarp();
        if (lane < step) tile[t] = tile[t] + other;
        __syncwarp();
    }
    PUT(sum, tile[t & ~31])
    __syncwarp();
    u32 part;
    if (lane < 8) {
        tile[t] = x + 1;
        __syncwarp(0xFF);
        part = tile[t ^ 7];
    } else {
        tile[t] = x + 2;
        __syncwarp(0xFFFFFF00);
        part = tile[(t & ~31) + 8 + (lane - 7) % 24];
    }
    PUT(parts, part)
}

// Threads that have ended no longer count at a barrier.
extern "C" __global__ void leavers(const u32 *data, u32 *out, int n) {
    __shared__ u32 tile[256];
    BEGIN
    tile[t] = x;
    __syncthreads();
    if (t >= 192) return;
    tile[t] += 1;
    __syncthreads();
    PUT(kept, tile[(t + 32) % 192])
    PUT(counted, __syncthreads_count(1))
}
