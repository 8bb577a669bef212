// Loads and stores in every state space and width. One row of `out` for each PUT, as 64-bit patterns.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
#define PUT(name, value) out[row++ * n + i] = (u64)(value);
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    if (i >= n) return;
#define LOAD(text, D, r)                                                                        \
    ([&] { D d; asm volatile("ld." text " %0, [%1];" : "=" r(d) : "l"(p) : "memory"); return d; }())

// `data` holds 64 bytes a thread.
extern "C" __global__ void global_loads(const u8 *data, u64 *out, int n) {
    BEGIN
    const u8 *p = data + 64 * i;
    PUT(s8, LOAD("global.s8", int, "r"))
    PUT(u8, LOAD("global.u8", u32, "r"))
    PUT(b8, LOAD("global.b8", u32, "r"))
    PUT(s16, LOAD("global.s16", short, "h"))
    PUT(u16, LOAD("global.u16", u16, "h"))
    PUT(s16_in_32, LOAD("global.s16", int, "r"))
    PUT(u8_in_64, LOAD("global.u8", u64, "l"))
    PUT(s32_in_64, LOAD("global.s32", u64, "l"))
    PUT(u32, LOAD("global.u32", u32, "r"))
    PUT(b32, LOAD("global.b32", u32, "r"))
    PUT(b64, LOAD("global.b64", u64, "l"))
    PUT(f32, __float_as_uint(LOAD("global.f32", float, "f")))
    PUT(f64, __double_as_longlong(LOAD("global.f64", double, "d")))
    PUT(nc, LOAD("global.nc.u32", u32, "r"))
    PUT(volatile_, LOAD("volatile.global.u32", u32, "r"))
    PUT(ca, LOAD("global.ca.u32", u32, "r"))
    PUT(cg, LOAD("global.cg.u32", u32, "r"))
    PUT(cs, LOAD("global.cs.u32", u32, "r"))
    PUT(cv, LOAD("global.cv.u32", u32, "r"))
    PUT(relaxed, LOAD("relaxed.gpu.global.u32", u32, "r"))
    PUT(acquire, LOAD("acquire.gpu.global.u32", u32, "r"))
    PUT(acquire_sys, LOAD("acquire.sys.global.u64", u64, "l"))
    PUT(weak, LOAD("weak.global.u16", u32, "r"))
    PUT(generic, LOAD("u32", u32, "r"))
    u32 a, b, c, d;
    u64 e, f;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2+8];" : "=r"(a), "=r"(b) : "l"(p));
    PUT(v2_u32, a * 3 + b)
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4+16];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
    PUT(v4_u32, a * 3 + b * 5 + c * 7 + d)
    asm volatile("ld.global.v4.u8 {%0, %1, %2, %3}, [%4+4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
    PUT(v4_u8, a + b * 256 + c * 65536 + d * 3)
    asm volatile("ld.global.v2.s16 {%0, %1}, [%2+12];" : "=r"(a), "=r"(b) : "l"(p));
    PUT(v2_s16, a * 3 + b)
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2+32];" : "=l"(e), "=l"(f) : "l"(p));
    PUT(nc_v2_u64, e * 3 + f)
    asm volatile("ld.global.v2.b64 {%0, _}, [%1+48];" : "=l"(e) : "l"(p));
    PUT(v2_sink, e)
    PUT(minus_offset, ([&] { u32 x; asm volatile("ld.global.u32 %0, [%1+-4];" : "=r"(x) : "l"(p + 8)); return x; }()))
}

extern "C" __global__ void global_stores(const u64 *data, u8 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u8 *p = out + 128 * i;
    u64 x = data[i];
    u32 y = (u32)(x >> 7);
    asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(y) : "memory");
    asm volatile("st.global.b8 [%0+3], %1;" ::"l"(p), "r"(y >> 4) : "memory");
    asm volatile("st.global.u16 [%0+4], %1;" ::"l"(p), "h"((u16)y) : "memory");
    asm volatile("st.global.u16 [%0+6], %1;" ::"l"(p), "r"(y >> 9) : "memory");
    asm volatile("st.global.u32 [%0+8], %1;" ::"l"(p), "r"(y) : "memory");
    asm volatile("st.global.b32 [%0+12], %1;" ::"l"(p), "f"(__uint_as_float(y)) : "memory");
    asm volatile("st.global.u64 [%0+16], %1;" ::"l"(p), "l"(x) : "memory");
    asm volatile("st.global.f64 [%0+24], %1;" ::"l"(p), "d"(__longlong_as_double(x)) : "memory");
    asm volatile("st.global.v2.u32 [%0+32], {%1, %2};" ::"l"(p), "r"(y), "r"(~y) : "memory");
    asm volatile("st.global.v4.f32 [%0+48], {%1, %2, %3, %4};" ::"l"(p), "f"(1.5f), "f"(-0.0f), "f"((float)i), "f"(2.0f)
                 : "memory");
    asm volatile("st.global.v4.u8 [%0+64], {%1, %2, %3, %4};" ::"l"(p), "r"(y), "r"(y >> 8), "r"(y >> 3), "r"(y >> 20)
                 : "memory");
    asm volatile("st.global.v2.u64 [%0+80], {%1, %2};" ::"l"(p), "l"(x), "l"(x * 3) : "memory");
    asm volatile("st.volatile.global.u32 [%0+96], %1;" ::"l"(p), "r"(y) : "memory");
    asm volatile("st.global.wb.u32 [%0+100], %1;" ::"l"(p), "r"(y + 1) : "memory");
    asm volatile("st.global.cg.u32 [%0+104], %1;" ::"l"(p), "r"(y + 2) : "memory");
    asm volatile("st.global.cs.u32 [%0+108], %1;" ::"l"(p), "r"(y + 3) : "memory");
    asm volatile("st.global.wt.u32 [%0+112], %1;" ::"l"(p), "r"(y + 4) : "memory");
    asm volatile("st.relaxed.gpu.global.u32 [%0+116], %1;" ::"l"(p), "r"(y + 5) : "memory");
    asm volatile("st.release.gpu.global.u32 [%0+120], %1;" ::"l"(p), "r"(y + 6) : "memory");
    asm volatile("st.u32 [%0+124], %1;" ::"l"(p), "r"(y + 7) : "memory");
}

struct Mixed {
    char tag;
    short small;
    float real;
    double wide;
    uchar3 colour;
};

// Structures and the built-in vector types, read and written whole and by member.
extern "C" __global__ void structures(const u8 *data, u64 *out, int n) {
    BEGIN
    const u8 *p = data + 64 * i;
    Mixed mixed = *(const Mixed *)p;
    PUT(tag, mixed.tag)
    PUT(small, mixed.small)
    PUT(real, __float_as_uint(mixed.real))
    PUT(wide, __double_as_longlong(mixed.wide))
    PUT(colour, mixed.colour.x + mixed.colour.y * 256 + mixed.colour.z * 65536)
    float4 quad = *(const float4 *)(p + 16);
    PUT(float4, __float_as_uint(quad.x) ^ __float_as_uint(quad.w))
    double2 pair = *(const double2 *)(p + 32);
    PUT(double2, __double_as_longlong(pair.x) ^ __double_as_longlong(pair.y))
    char4 chars = *(const char4 *)(p + 4);
    PUT(char4, chars.x * 1000 + chars.y * 100 + chars.z * 10 + chars.w)
    float3 triple = *(const float3 *)(p + 12);
    PUT(float3, __float_as_uint(triple.x) ^ __float_as_uint(triple.y) ^ __float_as_uint(triple.z))
    PUT(ldg, __ldg((const u16 *)p) + __ldg((const signed char *)p))
    PUT(unaligned_bytes, p[1] + (p[2] << 8) + (p[3] << 16) + ((u64)p[4] << 24))
}

__constant__ int table[16] = {5, -3, 8, 1 << 30, -(1 << 30), 0, 7, 9, 11, 13, 17, 19, 23, 29, 31, 37};
__constant__ float weights[8] = {0.5f, -1.25f, 3e38f, 1e-40f, 0.0f, -0.0f, 7.0f, 8.0f};
__constant__ Mixed settings = {'x', -300, 2.5f, 1e300, {1, 2, 3}};
__constant__ u8 letters[] = "constant memory";
__device__ int plain[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ const double halves[4] = {0.5, 1.5, 2.5, 3.5};
__device__ int *pointer_into_plain = plain + 2;
__device__ const int *const constant_pointers[2] = {&plain[1], &plain[5]};
__constant__ const u8 *message = letters;

extern "C" __global__ void constants_and_variables(const u32 *data, u64 *out, int n) {
    BEGIN
    u32 x = data[i];
    PUT(uniform, table[3] + table[n & 7])
    PUT(scattered, table[x & 15])
    PUT(weight, __float_as_uint(weights[x & 7]))
    PUT(structure, settings.small + settings.tag + settings.colour.z)
    PUT(wide, __double_as_longlong(settings.wide))
    PUT(letter, letters[x % 15])
    PUT(through_pointer, *(&table[0] + (x >> 4) % 16))
    PUT(ternary_space, *((x & 1) ? &table[x % 16] : &plain[x % 8]))
    PUT(plain, plain[x % 8])
    PUT(half, __double_as_longlong(halves[x % 4]))
    PUT(pointer, pointer_into_plain[x % 4])
    PUT(pointers, *constant_pointers[x & 1])
    PUT(message, message[x % 9])
}

// Local arrays with an index that the compiler cannot know, and addresses of locals handed to functions.
__device__ __noinline__ void bump(int *value, u8 *bytes, int by) {
    *value += by;
    for (int k = 0; k < by % 5; ++k) bytes[k] = (u8)(bytes[k] * 3 + by);
}

extern "C" __global__ void local_memory(const u32 *data, u64 *out, int n) {
    BEGIN
    u32 x = data[i];
    int ints[13];
    double reals[5];
    u8 bytes[19];
    u16 shorts[6];
    for (int k = 0; k < 13; ++k) ints[k] = (x >> k) ^ k;
    for (int k = 0; k < 5; ++k) reals[k] = x * 0.25 + k;
    for (int k = 0; k < 19; ++k) bytes[k] = (u8)(x * k);
    for (int k = 0; k < 6; ++k) shorts[k] = (u16)(x + k * 1000);
    PUT(int_at, ints[x % 13])
    PUT(real_at, __double_as_longlong(reals[x % 5]))
    PUT(byte_at, bytes[(x >> 3) % 19])
    PUT(short_at, shorts[(x >> 5) % 6])
    ints[(x >> 2) % 13] = 77;
    reals[(x >> 6) % 5] = -0.0;
    PUT(int_after_store, ints[x % 13] + ints[(x >> 2) % 13])
    PUT(real_after_store, __double_as_longlong(reals[(x >> 6) % 5]))
    int value = (int)x;
    bump(&value, bytes + (x % 7), (int)(x & 15));
    PUT(through_function, value)
    PUT(bytes_through_function, bytes[x % 7] + bytes[(x % 7) + 3] * 256)
    for (int k = 1; k < 13; ++k)  // insertion sort
        for (int j = k; j > 0 && ints[j - 1] > ints[j]; --j) { int t = ints[j]; ints[j] = ints[j - 1]; ints[j - 1] = t; }
    PUT(sorted, ints[0] * 3 + ints[6] * 5 + ints[12])
}

// Shared memory: static, dynamic, several types in one dynamic block, and pointers of unknown space.
extern __shared__ __align__(16) u8 dynamic[];

__device__ __noinline__ u32 sum_of(const u32 *values, int count, int stride) {
    u32 sum = 0;
    for (int k = 0; k < count; ++k) sum = sum * 31 + values[k * stride];
    return sum;
}

extern "C" __global__ void shared_memory(const u32 *data, u64 *out, int n) {
    BEGIN  // the launch has exactly n threads: the barriers below need them all
    __shared__ u32 words[64];
    __shared__ u8 bytes[64];
    __shared__ double reals[64];
    __shared__ uint2 pairs[2][32];
    int t = threadIdx.x;
    u32 x = data[i];
    u32 *first = (u32 *)dynamic;
    double *second = (double *)(dynamic + 64 * 4);
    u8 *third = dynamic + 64 * 12;
    words[t] = x;
    bytes[t] = (u8)x;
    reals[t] = x * 0.5;
    pairs[t >> 5][t & 31] = make_uint2(x, ~x);
    first[t] = x ^ 1;
    second[t] = -1.0 * x;
    third[t] = (u8)(x >> 8);
    __syncthreads();
    int other = (t + (x & 31)) & 63;
    PUT(word, words[other])
    PUT(byte, bytes[other])
    PUT(real, __double_as_longlong(reals[other]))
    PUT(pair, pairs[other >> 5][other & 31].y)
    PUT(dynamic_word, first[other])
    PUT(dynamic_real, __double_as_longlong(second[other]))
    PUT(dynamic_byte, third[other])
    PUT(volatile_word, *(volatile u32 *)&words[other])
    PUT(vector, ((const uint4 *)words)[other >> 2].z)
    const u32 *unknown = (x & 1) ? words : (x & 2) ? first : data;
    PUT(generic, unknown[other])
    PUT(generic_in_function, sum_of((x & 1) ? words : data, 4, 2))
    PUT(is_shared, __isShared(unknown) + 2 * __isGlobal(unknown) + 4 * __isLocal(&x))
    __syncthreads();
    *((x & 1) ? words + t : first + t) = x + 1;
    __syncthreads();
    PUT(after_generic_store, words[other] * 3 + first[other])
    u32 low;
    asm volatile("{ .reg .u64 s; cvta.to.shared.u64 s, %1; ld.shared.u32 %0, [s]; }" : "=r"(low) : "l"(words + other));
    PUT(cvta_to_shared, low)
    u32 address = (u32)__cvta_generic_to_shared(first + other);
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(low) : "r"(address));
    PUT(shared_address, low)
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"((u32)__cvta_generic_to_shared(&pairs[t >> 5][t & 31])), "r"(x), "r"(x + 2)
                 : "memory");
    __syncthreads();
    PUT(after_vector_store, pairs[other >> 5][other & 31].x + pairs[other >> 5][other & 31].y)
}
