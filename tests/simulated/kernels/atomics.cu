// Atomics in global or shared memory (SPACE 1 or 2): first each thread on a word of its own, where old and new values
// are certain, then all threads on the same words, where only what does not depend on the order is kept.
typedef unsigned u32;
typedef unsigned long long u64;
#define BLOCK 64
#define BEGIN                                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;     \
    u32 x = data[i];

#if SPACE == 1
#define PLACE u64 *wide = &state[row * n + i];
#define LEAVE
#define ADDRESS "l"(word)
#define ATOM "global"
#else
#define PLACE __shared__ u64 own[BLOCK]; u64 *wide = &own[threadIdx.x]; *wide = state[row * n + i];
#define LEAVE state[row * n + i] = *wide;
#define ADDRESS "r"((u32)__cvta_generic_to_shared(word))
#define ATOM "shared"
#endif
#define EACH(name, expression)                                      \
    {                                                               \
        PLACE                                                       \
        u32 *word = (u32 *)wide;                                    \
        (void)word;                                                 \
        old[row * n + i] = (u64)(expression);                       \
        LEAVE                                                       \
        ++row;                                                      \
    }
#define RAW(text, value)                                                                                          \
    ([&] { u32 d; asm volatile("atom." text " %0, [%1], %2;" : "=r"(d) : ADDRESS, "r"(value) : "memory"); return d; }())

extern "C" __global__ void own_word(const u32 *data, u64 *state, u64 *old, int n) {
    BEGIN
    EACH(add, atomicAdd(word, x))
    EACH(add_int, (u32)atomicAdd((int *)word, (int)x))
    EACH(sub, atomicSub(word, x))
    EACH(exch, atomicExch(word, x))
    EACH(min_, atomicMin(word, x))
    EACH(max_, atomicMax(word, x))
    EACH(min_int, (u32)atomicMin((int *)word, (int)x))
    EACH(max_int, (u32)atomicMax((int *)word, (int)x))
    EACH(and_, atomicAnd(word, x))
    EACH(or_, atomicOr(word, x))
    EACH(xor_, atomicXor(word, x))
    EACH(inc, atomicInc(word, x))
    EACH(dec, atomicDec(word, x))
    EACH(inc_wraps, atomicInc(word, *word))
    EACH(cas_hit, atomicCAS(word, *word, x))
    EACH(cas_miss, atomicCAS(word, *word + 1, x))
    // Neither infinity nor NaN, whose bits are not part of the comparison; denormals, though, which global memory flushes.
    EACH(add_float, (*word &= 0xBFFFFFFF, __float_as_uint(atomicAdd((float *)word, __uint_as_float(x & 0xBFFFFFFF)))))
    EACH(add_tiny, (*word &= 0x80FFFFFF, __float_as_uint(atomicAdd((float *)word, __uint_as_float(x & 0x80FFFFFF)))))
    EACH(exch_float, __float_as_uint(atomicExch((float *)word, __uint_as_float(x))))
    EACH(add_64, atomicAdd(wide, (u64)x * x))
    EACH(min_64, atomicMin((long long *)wide, -(long long)x * x))
    EACH(max_64, atomicMax((long long *)wide, -(long long)x * x))
    EACH(min_u64, atomicMin(wide, (u64)x << 31))
    EACH(max_u64, atomicMax(wide, (u64)x << 31))
    EACH(exch_64, atomicExch(wide, (u64)x << 9))
    EACH(cas_64, atomicCAS(wide, x & 1 ? *wide : 3ull, 0x123456789ull))
    EACH(cas_16, atomicCAS((unsigned short *)word, (unsigned short)(x & 1 ? *word : 3), (unsigned short)x))
    EACH(and_64, atomicAnd(wide, (u64)x << 20))
    EACH(or_64, atomicOr(wide, (u64)x << 20))
    EACH(xor_64, atomicXor(wide, (u64)x << 20))
    EACH(add_double, (*wide &= ~(1ull << 62), __double_as_longlong(atomicAdd((double *)wide, (double)x))))
    EACH(add_block, atomicAdd_block(word, x))
    EACH(max_system, atomicMax_system(word, x))
    EACH(acquire_release, RAW("acq_rel.gpu." ATOM ".add.u32", x))
    EACH(relaxed, RAW("relaxed.cta." ATOM ".exch.b32", x))
    EACH(unused_result, ([&] { atomicAdd(word, x); atomicXor(wide, 5ull); return 0; }()))
    EACH(maximum_by_cas, ([&] {
             u32 seen = *word, assumed;
             do { assumed = seen; seen = atomicCAS(word, assumed, max(assumed, x)); } while (seen != assumed);
             return seen;
         }()))
}

// FETCH keeps an old value whose multiset over all threads is certain; the words' last values are certain, too.
#define FETCH(name, value) old[row++ * n + i] = (u64)(value);
#if SPACE == 1
#define MEET u64 *wides = state + BLOCK; u32 *words = (u32 *)state;
#define PART
#else
#define MEET                                                                                            \
    __shared__ u64 shared[BLOCK + 16];                                                                  \
    for (int k = threadIdx.x; k < BLOCK + 16; k += BLOCK) shared[k] = state[k];                         \
    u64 *wides = shared + BLOCK; u32 *words = (u32 *)shared;                                            \
    __syncthreads();
#define PART                                                                                            \
    __syncthreads();                                                                                    \
    for (int k = threadIdx.x; k < BLOCK + 16; k += BLOCK) state[k] = shared[k];
#endif

extern "C" __global__ void same_word(const u32 *data, u64 *state, u64 *old, int n) {
    BEGIN
    MEET
    FETCH(add, atomicAdd(&words[0], 3u))
    FETCH(sub, atomicSub(&words[1], 2u))
    FETCH(inc, atomicInc(&words[2], 29))
    FETCH(dec, atomicDec(&words[3], 29))
    FETCH(cas, atomicCAS(&words[4], 0u, 9u))
    FETCH(add_float, __float_as_uint(atomicAdd((float *)&words[5], 1.0f)))
    FETCH(add_64, atomicAdd(&wides[0], 0x100000001ull))
    FETCH(add_double, __double_as_longlong(atomicAdd((double *)&wides[1], 0.5)))
    FETCH(histogram, atomicAdd(&words[16 + x % 8], 1u))
    FETCH(or_, (atomicOr(&words[6], 1u << 7) & ~(1u << 7)))
    FETCH(ticket_by_divergent, x & 1 ? atomicAdd(&words[7], 1u) : atomicAdd(&words[7], 1u))
    atomicAdd(&words[8], x);
    atomicMin(&words[9], x);
    atomicMax((int *)&words[10], (int)x);
    atomicAnd(&words[11], x | 0xFFF0FFFF);
    atomicOr(&words[12], 1u << (x & 31));
    atomicXor(&words[13], x);
    atomicAdd((float *)&words[14], (float)(x & 1023));
    atomicMax(&wides[2], (u64)x << 20);
    atomicMin((long long *)&wides[3], -5 * (long long)x);
    atomicXor(&wides[4], (u64)x << 11);
    u32 seen = words[15], assumed;
    do { assumed = seen; seen = atomicCAS(&words[15], assumed, assumed * 1 + (x & 255)); } while (seen != assumed);
    PART
}
