// Control flow: switches, calls, loops whose trip count differs between the lanes of a warp. One row of `out` a PUT.
typedef unsigned u32;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;                                         \
    u32 x = data[i];

extern "C" __global__ void branches(const u32 *data, u32 *out, int n) {
    BEGIN
    u32 r;
    switch (x % 11) {  // dense enough for a jump table
        case 0: r = x * 3; break;
        case 1: r = x ^ 0xFF; break;
        case 2: r = x << 3 | 1;  // falls through
        case 3: r = x + 17; break;
        case 4: for (r = 0; r * r < (x & 255); ++r); r += 5; break;
        case 5: r = __popc(x); break;
        case 6: r = x / 7; break;
        case 7: r = x % 13; break;
        case 8: r = ~x; break;
        default: r = 99;
    }
    PUT(dense_switch, r)
    switch (x & 0xFFF) {
        case 1: r = 10; break;
        case 77: r = 20; break;
        case 4000: r = 30; break;
        default: r = x & 3 ? 40 : 50;
    }
    PUT(sparse_switch, r)
    if (x & 1) {
        if (x & 2) r = x * 5;
        else if (x & 4) { r = 0; for (u32 k = 0; k < (x & 7); ++k) r += k * x; }
        else r = 3;
    } else if ((x & 6) == 6) r = x - 1;
    else r = x & 8 ? 1 : 2;
    PUT(nested_if, r)
    u32 steps = 0;
    for (unsigned long long c = (x & 1023) + 1; c != 1; c = c & 1 ? 3 * c + 1 : c / 2) ++steps;
    PUT(collatz, steps)
    r = 0;
    for (u32 a = 0; a < 20; ++a) {
        if (a == (x & 15)) continue;
        if (a > (x >> 4 & 31)) break;
        for (u32 b = 0; b < a; ++b) {
            if (((a * b) ^ x) % 7 == 0) break;
            if ((b & x) == 1) continue;
            r = r * 3 + b;
        }
    }
    PUT(break_and_continue, r)
    r = x & 0xFF;
    do { r = r * 5 + 1 & 0xFFF; } while (r % 3 != x % 3);
    PUT(do_while, r)
    u32 a = (x & 0xFFFF) + 1, b = (x >> 16) + 1;
    while (b) { u32 t = a % b; a = b; b = t; }
    PUT(euclid, a)
    r = x;
again:
    if (r % 5) { r = r / 2 + 1; if (r > 3) goto again; }
    PUT(goto_loop, r)
    PUT(short_circuit, (x & 1 && 100 / (1 + (x & 3)) > 30) || (x & 4 && x % 9 == 0))
}

extern "C" __global__ void early_exit(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(before, x)
    if (x % 3 == 0) return;
    PUT(after_first, x + 1)
    for (u32 k = 0; k < 40; ++k) {
        if ((x >> (k & 31)) % 37 == 5) return;
        x = x * 1664525u + 1013904223u;
    }
    if (x & 1) asm volatile("exit;");
    PUT(after_loop, x)
}

__device__ __noinline__ u32 twist(u32 a, u32 b) { return (a << 5 | a >> 27) ^ b; }
__device__ __noinline__ double blend(double a, float b, short c) { return a * b + c; }
__device__ __noinline__ u32 outer(u32 a, int depth) {
    u32 r = a;
    for (int k = 0; k < depth; ++k) r = r & 1 ? twist(r, a) : twist(a, r) + 1;
    return r;
}
struct Pair { u32 low; unsigned long long high; u32 more[3]; };
__device__ __noinline__ Pair pair_of(u32 a, Pair p) {
    p.low ^= a;
    p.high += (unsigned long long)a << 20;
    p.more[a % 3] = a;
    return p;
}
__device__ __noinline__ void divide(u32 a, u32 b, u32 *quotient, u32 *remainder) {
    *quotient = a / b;
    *remainder = a % b;
}
__device__ __noinline__ bool early(u32 a) {
    if (a & 1) return false;
    if (a % 3 == 0) return true;
    while (a > 10) a /= 2;
    return a & 1;
}

extern "C" __global__ void calls(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(one_call, twist(x, 3))
    PUT(chain, outer(x, (int)(x & 7)))
    PUT(mixed_types, (u32)__double2ll_rz(blend(x, 0.25f, (short)x)))
    Pair p = {x, 5, {1, 2, 3}};
    p = pair_of(x * 7, p);
    PUT(structure, p.low ^ (u32)(p.high >> 9) ^ p.more[0] * 3 ^ p.more[2])
    u32 q, r;
    divide(x, (x & 31) + 1, &q, &r);
    PUT(out_pointers, q * 3 + r)
    PUT(early_return, early(x))
    u32 nested = 0;
    if (x & 2) nested = early(x >> 1) ? twist(x, 9) : outer(x, 2);
    PUT(divergent_call, nested)
}

__device__ u32 add_one(u32 a) { return a + 1; }
__device__ u32 triple(u32 a) { return a * 3; }
__device__ u32 mix(u32 a) { u32 r = 0; for (u32 k = 0; k < (a & 7); ++k) r = r * 33 + a; return r; }
typedef u32 (*Operation)(u32);
__device__ Operation operations[3] = {add_one, triple, mix};
struct Shape { __device__ virtual u32 area(u32 a) const { return a; } };
struct Square : Shape { __device__ u32 area(u32 a) const override { return a * a; } };
struct Circle : Shape { __device__ u32 area(u32 a) const override { return a * a * 22 / 7; } };

extern "C" __global__ void indirect_calls(const u32 *data, u32 *out, int n) {
    BEGIN
    PUT(uniform, operations[n % 3](x))
    PUT(divergent, operations[x % 3](x))
    Square square;
    Circle circle;
    Shape plain;
    const Shape *shape = x % 3 == 0 ? &plain : x % 3 == 1 ? (const Shape *)&square : &circle;
    PUT(virtual_call, shape->area(x & 0xFFFF))
}

// Fences, pauses and clocks change nothing that can be read, apart from time that goes forward.
extern "C" __global__ void waits(const u32 *data, u32 *out, int n) {
    BEGIN
    long long before = clock64();
    unsigned long long start;
    u32 tick = clock();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    asm volatile("membar.gl; membar.cta; membar.sys; fence.acq_rel.gpu; fence.sc.cta; fence.acq_rel.sys;" ::: "memory");
    __nanosleep(20 + (x & 7));
    asm volatile("nanosleep.u32 40;");
    PUT(clock_goes_on, clock64() > before)
    PUT(value_kept, x)
    PUT(tick_differs, clock() != tick || start == 1)
}
