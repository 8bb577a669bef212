// Kernels that wait: at memory fences, for other blocks, for calls and jumps to an address in a register, and for loads
// one after the other.
#define FENCE_NONE
#define FENCE_BLOCK __threadfence_block();
#define FENCE_GPU __threadfence();
#define FENCE_SYSTEM __threadfence_system();
#define EACH_FENCE(define) define(none, FENCE_NONE) define(block, FENCE_BLOCK) define(gpu, FENCE_GPU) define(system, FENCE_SYSTEM)
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ROUNDS 64

extern "C" {
// --- a fence per round: alone, after one store, after four, after a load ------------------------
#define FENCED_LOOPS(scope, FENCE) \
    __global__ void loop_alone_##scope(volatile unsigned *out, unsigned lanes) { \
        if (threadIdx.x % 32 < lanes) \
            for (int i = 0; i < ROUNDS; i++) { FENCE } \
        out[THREAD] = 1; \
    } \
    __global__ void loop_store_##scope(volatile unsigned *out, unsigned lanes) { \
        if (threadIdx.x % 32 < lanes) \
            for (int i = 0; i < ROUNDS; i++) { out[THREAD] = i; FENCE } \
    } \
    __global__ void loop_stores_##scope(volatile unsigned *out, unsigned lanes) { \
        unsigned all = gridDim.x * blockDim.x; \
        if (threadIdx.x % 32 < lanes) \
            for (int i = 0; i < ROUNDS; i++) { \
                out[THREAD] = i; out[THREAD + all] = i; out[THREAD + 2 * all] = i; out[THREAD + 3 * all] = i; FENCE \
            } \
    } \
    __global__ void loop_load_##scope(volatile unsigned *out, unsigned lanes) { \
        unsigned sum = 0; \
        if (threadIdx.x % 32 < lanes) \
            for (int i = 0; i < ROUNDS; i++) { sum += out[THREAD]; FENCE } \
        out[THREAD] = sum; \
    }
EACH_FENCE(FENCED_LOOPS)

// --- streams: a fence after each element, with one or four loads and stores under way -----------
#define FENCED_STREAMS(scope, FENCE) \
    __global__ void stream_##scope(const float *in, float *out, unsigned n) { \
        for (unsigned i = THREAD; i < n; i += gridDim.x * blockDim.x) { out[i] = in[i] + 1; FENCE } \
    } \
    __global__ void stream_vectors_##scope(const float4 *in, float4 *out, unsigned n) { \
        for (unsigned i = THREAD; i < n; i += gridDim.x * blockDim.x) { out[i] = in[i]; FENCE } \
    } \
    __global__ void stream_loads_##scope(const float *in, float *out, unsigned n) { \
        float sum = 0; \
        for (unsigned i = THREAD; i < n; i += gridDim.x * blockDim.x) { sum += in[i]; FENCE } \
        out[THREAD] = sum; \
    } \
    __global__ void stream_four_##scope(const float *in, float *out, unsigned n) { \
        unsigned step = gridDim.x * blockDim.x; \
        for (unsigned i = THREAD; i < n; i += 4 * step) { \
            float a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step]; \
            out[i] = a; out[i + step] = b; out[i + 2 * step] = c; out[i + 3 * step] = d; FENCE \
        } \
    } \
    __global__ void reduce_##scope(const float *in, float *out, unsigned n) { \
        __shared__ float tile[256]; \
        unsigned t = threadIdx.x; \
        float sum = 0; \
        for (unsigned i = THREAD; i < n; i += gridDim.x * blockDim.x) sum += in[i]; \
        tile[t] = sum; \
        __syncthreads(); \
        for (unsigned half = 128; half > 0; half /= 2) { \
            if (t < half) tile[t] += tile[t + half]; \
            FENCE \
            __syncthreads(); \
        } \
        if (t == 0) out[blockIdx.x] = tile[0]; \
    }
EACH_FENCE(FENCED_STREAMS)

// --- tickets: blocks copy, and the last one finds out by a counter ------------------------------
#define TICKETS(name, FENCE_OF_ALL, FENCE_OF_ONE) \
    __global__ void ticket_##name(const float *in, float *out, unsigned *ticket, unsigned n) { \
        for (unsigned i = THREAD; i < n; i += gridDim.x * blockDim.x) out[i] = in[i]; \
        FENCE_OF_ALL \
        __syncthreads(); \
        if (threadIdx.x == 0) { \
            FENCE_OF_ONE \
            if (atomicAdd(ticket, 1u) == gridDim.x - 1) out[0] = 0; \
        } \
    }
TICKETS(unfenced, , )
TICKETS(fence_of_all, __threadfence();, )
TICKETS(fence_of_one, , __threadfence();)
TICKETS(system_fence_of_one, , __threadfence_system();)

// --- chains: each block waits for the one before it ---------------------------------------------
__device__ __forceinline__ unsigned load_acquire(const volatile unsigned *p) {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_release(volatile unsigned *p, unsigned v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}
#define CHAIN(name, WAIT, AFTER, BEFORE, PUBLISH) \
    __global__ void chain_##name(volatile unsigned *flags, volatile unsigned *values, unsigned *ticket) { \
        if (threadIdx.x == 0) { \
            unsigned mine = atomicAdd(ticket, 1u), before = 0; \
            if (mine > 0) { \
                while (WAIT == 0) {} \
                AFTER \
                before = values[mine - 1]; \
            } \
            values[mine] = before + 1; \
            BEFORE \
            PUBLISH; \
        } \
    }
#define PLAIN flags[mine - 1]
#define FLAG flags[mine] = 1
CHAIN(unfenced, PLAIN, , , FLAG)
CHAIN(fence_before_flag, PLAIN, , __threadfence();, FLAG)
CHAIN(fence_after_wait, PLAIN, __threadfence();, , FLAG)
CHAIN(two_fences, PLAIN, __threadfence();, __threadfence();, FLAG)
CHAIN(system_fences, PLAIN, __threadfence_system();, __threadfence_system();, FLAG)
CHAIN(acquire_release, load_acquire(flags + mine - 1), , , store_release(flags + mine, 1))
CHAIN(atomics, atomicAdd((unsigned *)flags + mine - 1, 0u), , , atomicExch((unsigned *)flags + mine, 1u))
// value and flag in one word: a hop is one store and one load
__global__ void chain_packed(volatile unsigned long long *words, unsigned *ticket) {
    if (threadIdx.x == 0) {
        unsigned mine = atomicAdd(ticket, 1u);
        unsigned long long before = 0;
        if (mine > 0) while ((before = words[mine - 1]) == 0) {}
        words[mine] = before + 1;
    }
}
// the whole block waits at barriers, and all of its threads fence
__global__ void chain_blocks(volatile unsigned *flags, volatile float *values, unsigned *ticket) {
    __shared__ unsigned shared_mine;
    if (threadIdx.x == 0) shared_mine = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned mine = shared_mine, n = blockDim.x;
    if (threadIdx.x == 0 && mine > 0) while (flags[mine - 1] == 0) {}
    __syncthreads();
    values[mine * n + threadIdx.x] = mine > 0 ? values[(mine - 1) * n + threadIdx.x] + 1 : 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) flags[mine] = 1;
}

// --- look-back: blocks publish their own sum first, and add those before them ------------------
__device__ __forceinline__ float block_sum(const float *in, unsigned tile, float *shared) {
    shared[threadIdx.x] = in[tile * blockDim.x + threadIdx.x];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}
#define LOOK_BACK(name, WORDS, WALK, PUBLISH) \
    __global__ void look_back_##name(const float *in, float *out, unsigned *ticket, WORDS) { \
        __shared__ float shared[256], shared_before; \
        __shared__ unsigned shared_tile; \
        if (threadIdx.x == 0) shared_tile = atomicAdd(ticket, 1u); \
        __syncthreads(); \
        unsigned tile = shared_tile; \
        float sum = block_sum(in, tile, shared), before = 0; \
        if (threadIdx.x == 0) { PUBLISH(tile == 0 ? 2 : 1, sum) } \
        if (threadIdx.x < WALK##_LANES && tile > 0) { \
            WALK \
            if (threadIdx.x == 0) { PUBLISH(2, before + sum) } \
        } \
        if (threadIdx.x == 0) shared_before = before; \
        __syncthreads(); \
        out[tile * blockDim.x + threadIdx.x] = shared_before + sum; \
    }
// one word for each tile: 1 and its sum, or 2 and the sum of all up to it
#define PACKED volatile unsigned long long *words
#define PACK(what, sum) words[tile] = (unsigned long long)(what) << 32 | __float_as_uint(sum);
#define ONE_THREAD_LANES 1
#define ONE_THREAD \
    for (int seen = tile - 1; seen >= 0; --seen) { \
        unsigned long long word; \
        while ((word = words[seen]) >> 32 == 0) {} \
        before += __uint_as_float((unsigned)word); \
        if (word >> 32 == 2) break; \
    }
#define WARP_LANES 32
#define WARP \
    for (int base = (int)tile - 1; ; base -= 32) { \
        int seen = base - (int)threadIdx.x; \
        unsigned long long word = 2ull << 32; \
        if (seen >= 0) while ((word = words[seen]) >> 32 == 0) {} \
        __syncwarp(); \
        unsigned final = __ballot_sync(~0u, word >> 32 == 2); \
        float part = !final || threadIdx.x < __ffs(final) ? __uint_as_float((unsigned)word) : 0; \
        for (int d = 16; d; d /= 2) part += __shfl_xor_sync(~0u, part, d); \
        before += part; \
        if (final) break; \
    }
LOOK_BACK(one_thread, PACKED, ONE_THREAD, PACK)
LOOK_BACK(warp, PACKED, WARP, PACK)
// values and flags apart, so that fences or acquire and release must order them
#define APART volatile unsigned *flags, volatile float *sums, volatile float *totals
#define VALUE(what, sum) if ((what) == 2) totals[tile] = sum; else sums[tile] = sum;
#define FENCE_AND_FLAG(what, sum) VALUE(what, sum) __threadfence(); flags[tile] = what;
#define RELEASE_FLAG(what, sum) VALUE(what, sum) store_release(flags + tile, what);
#define FENCED_LANES 1
#define ACQUIRING_LANES 1
#define WALK_BACK(LOAD, FENCE) \
    for (int seen = tile - 1; seen >= 0; --seen) { \
        unsigned flag; \
        while ((flag = LOAD) == 0) {} \
        FENCE \
        before += flag == 2 ? totals[seen] : sums[seen]; \
        if (flag == 2) break; \
    }
#define FENCED WALK_BACK(flags[seen], __threadfence();)
#define ACQUIRING WALK_BACK(load_acquire(flags + seen), )
LOOK_BACK(fences, APART, FENCED, FENCE_AND_FLAG)
LOOK_BACK(acquire_release, APART, ACQUIRING, RELEASE_FLAG)
}

// --- calls of functions that the compiler does not inline ---------------------------------------
typedef float (*Operation)(float, float);
#define OPERATION(k) __device__ __noinline__ float operation##k(float x, float p) { return x * p + k; }
OPERATION(0) OPERATION(1) OPERATION(2) OPERATION(3) OPERATION(4) OPERATION(5) OPERATION(6) OPERATION(7)
__device__ Operation operations[8] = {operation0, operation1, operation2, operation3, operation4, operation5, operation6, operation7};
struct Shape { __device__ virtual float area(float x, float p) const = 0; };
#define SHAPE(k) struct Shape##k : Shape { __device__ float area(float x, float p) const override { return x * p + k; } };
SHAPE(0) SHAPE(1) SHAPE(2) SHAPE(3)

// `targets` is a power of two: the number of functions that a warp's lanes call at once
extern "C" {
__global__ void call_inlined(float *out, float p, unsigned targets) {
    float x = threadIdx.x;
#pragma unroll 4
    for (int i = 0; i < ROUNDS; i++) x = x * p + 1;
    out[THREAD] = x;
}
__global__ void call_direct(float *out, float p, unsigned targets) {
    float x = threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++) x = operation1(x, p);
    out[THREAD] = x;
}
__global__ void call_indirect(float *out, float p, unsigned targets) {
    float x = threadIdx.x;
    Operation operation = operations[threadIdx.x & (targets - 1)];
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++) x = operation(x, p);
    out[THREAD] = x;
}
// all lanes call the same function, another one in each round
__global__ void call_changing(float *out, float p, unsigned targets) {
    float x = threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++) x = operations[i & (targets - 1)](x, p);
    out[THREAD] = x;
}
__global__ void call_virtual(float *out, float p, unsigned targets) {
    Shape0 a; Shape1 b; Shape2 c; Shape3 d;
    unsigned which = threadIdx.x & (targets - 1);
    const Shape *shape = which == 0 ? (const Shape *)&a : which == 1 ? (const Shape *)&b : which == 2 ? (const Shape *)&c : &d;
    float x = threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++) x = shape->area(x, p);
    out[THREAD] = x;
}
__global__ void call_switch(float *out, float p, unsigned targets) {
    float x = threadIdx.x;
    unsigned which = threadIdx.x & (targets - 1);
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++)
        switch (which) {
            case 0: x = operation0(x, p); break;
            case 1: x = operation1(x, p); break;
            case 2: x = operation2(x, p); break;
            case 3: x = operation3(x, p); break;
            case 4: x = operation4(x, p); break;
            case 5: x = operation5(x, p); break;
            case 6: x = operation6(x, p); break;
            default: x = operation7(x, p);
        }
    out[THREAD] = x;
}

// --- several items per thread: how many loads of a warp are under way at once -----------------------
typedef unsigned char Byte;
__device__ __forceinline__ void clear(unsigned *s) {
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) s[bin] = 0;
    __syncthreads();
}
__device__ __forceinline__ void add_to(unsigned *bins, const unsigned *s) {
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x)
        if (s[bin]) atomicAdd(&bins[bin], s[bin]);
}
__global__ void byte_histogram(const Byte *in, unsigned *bins, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i]], 1u);
}
#define BYTE_HISTOGRAM(NAME, ITEMS, IN, GUARD, UPDATE) \
    __global__ void byte_histogram_##NAME(IN in, unsigned *bins, unsigned n) { \
        __shared__ unsigned s[256]; \
        clear(s); \
        unsigned first = blockIdx.x * blockDim.x * ITEMS + threadIdx.x; \
        for (int k = 0; k < ITEMS; k++) { \
            unsigned i = first + k * blockDim.x; \
            GUARD UPDATE; \
        } \
        add_to(bins, s); \
    }
#define IF_INSIDE if (i < n)
BYTE_HISTOGRAM(1, 1, const Byte *, IF_INSIDE, atomicAdd(&s[in[i]], 1u))
BYTE_HISTOGRAM(8, 8, const Byte *, IF_INSIDE, atomicAdd(&s[in[i]], 1u))
BYTE_HISTOGRAM(32, 32, const Byte *, IF_INSIDE, atomicAdd(&s[in[i]], 1u))
BYTE_HISTOGRAM(restrict, 32, const Byte *__restrict__, IF_INSIDE, atomicAdd(&s[in[i]], 1u))
BYTE_HISTOGRAM(free, 32, const Byte *, , atomicAdd(&s[in[i]], 1u))
BYTE_HISTOGRAM(store, 32, const Byte *, IF_INSIDE, s[in[i]] = i)
BYTE_HISTOGRAM(max, 32, const Byte *, IF_INSIDE, atomicMax(&s[in[i]], i))
// 16 bytes per load: how many updates of shared memory an SM executes per cycle
#define VECTORS(NAME, UPDATE) \
    __global__ void vector_##NAME(const uint4 *in, unsigned *bins, unsigned n) { \
        __shared__ unsigned s[256]; \
        clear(s); \
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { \
            uint4 v = in[i]; \
            unsigned words[] = {v.x, v.y, v.z, v.w}; \
            for (unsigned word : words) \
                for (int shift = 0; shift < 32; shift += 8) { \
                    unsigned bin = word >> shift & 255; \
                    UPDATE; \
                } \
        } \
        __syncthreads(); \
        if (s[threadIdx.x] == 0x7fffffff) bins[threadIdx.x] = 1; \
    }
VECTORS(count, atomicAdd(&s[bin], 1u))
VECTORS(add, atomicAdd(&s[bin], word))
VECTORS(store, s[bin] = word)
#define ITEMS(NAME, IN, OUT, GUARD, ITEM) \
    __global__ void items_##NAME(IN in, OUT out, unsigned n) { \
        unsigned first = blockIdx.x * blockDim.x * 16 + threadIdx.x; \
        for (int k = 0; k < 16; k++) { \
            unsigned i = first + k * blockDim.x; \
            GUARD ITEM; \
        } \
    }
#define OWN(A) A *__restrict__
ITEMS(copy, const unsigned *, unsigned *, , out[i] = in[i])
ITEMS(copy_restrict, OWN(const unsigned), OWN(unsigned), , out[i] = in[i])
ITEMS(copy_guarded, const unsigned *, unsigned *, IF_INSIDE, out[i] = in[i])
ITEMS(gather, const unsigned *, unsigned *, , out[i] = in[in[i] & (n - 1)])
ITEMS(gather_restrict, OWN(const unsigned), OWN(unsigned), , out[i] = in[in[i] & (n - 1)])
ITEMS(scatter, const unsigned *, unsigned *, , out[in[i] & (n - 1)] = i)
ITEMS(add, const unsigned *, unsigned *, , atomicAdd(&out[in[i] & (n - 1)], 1u))
ITEMS(add_restrict, OWN(const unsigned), OWN(unsigned), , atomicAdd(&out[in[i] & (n - 1)], 1u))
ITEMS(add_guarded, const unsigned *, unsigned *, IF_INSIDE, atomicAdd(&out[in[i] & (n - 1)], 1u))

// --- a `switch`: the assembler makes a table of jumps of many cases ---------------------------------
// as many neighbouring `lanes` take the same case
__global__ void switch_4(float *out, float p, unsigned lanes, unsigned mask) {
    float x = threadIdx.x;
    unsigned which = threadIdx.x / lanes;
#pragma unroll 1
    for (int i = 0; i < 64; i++, which++)
        switch (which & mask) {
            case 0: x = x * p + 1; break;
            case 1: x = (x + p) * x; break;
            case 2: x = __sinf(x); break;
            case 3: x = __fdividef(x, p); break;
        }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
}
