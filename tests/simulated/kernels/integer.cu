// Integer instructions with two or three operands, each through the assembler so that the opcode itself runs.
// Compiled once for each WIDTH (16, 32, 64) and SIGN (s, u). One row of `out` for each PUT.
#define TEXT(x) #x
#define EXPAND(x) TEXT(x)
#define TYPE EXPAND(SIGN) EXPAND(WIDTH)
#define BITS "b" EXPAND(WIDTH)
#define s 1
#define u 2
#define IS_SIGNED (SIGN == 1)
#if WIDTH == 16
typedef unsigned short T;
#define REGISTER "h"
#elif WIDTH == 32
typedef unsigned T;
#define REGISTER "r"
#else
typedef unsigned long long T;
#define REGISTER "l"
#endif
#if IS_SIGNED
#define SIGNED 1
#endif
#undef s
#undef u

#define PUT(name, value) out[row++ * n + i] = (value);
#define UNARY(text) ([&] { T d; asm volatile(text " %0, %1;" : "=" REGISTER(d) : REGISTER(a)); return d; }())
#define BINARY(text) \
    ([&] { T d; asm volatile(text " %0, %1, %2;" : "=" REGISTER(d) : REGISTER(a), REGISTER(b)); return d; }())
#define TERNARY(text)                                                                                      \
    ([&] {                                                                                                 \
        T d;                                                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=" REGISTER(d) : REGISTER(a), REGISTER(b), REGISTER(c));   \
        return d;                                                                                          \
    }())
#define SHIFT(text, amount) \
    ([&] { T d; asm volatile(text " %0, %1, %2;" : "=" REGISTER(d) : REGISTER(a), "r"(amount)); return d; }())
#define COUNT(text) ([&] { unsigned d; asm volatile(text " %0, %1;" : "=r"(d) : REGISTER(a)); return d; }())

extern "C" __global__ void arithmetic(const T *as, const T *bs, const T *cs, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i], b = bs[i], c = cs[i];
    PUT(add, BINARY("add." TYPE))
    PUT(sub, BINARY("sub." TYPE))
    PUT(mul_lo, BINARY("mul.lo." TYPE))
    PUT(mul_hi, BINARY("mul.hi." TYPE))
    PUT(mad_lo, TERNARY("mad.lo." TYPE))
    PUT(mad_hi, TERNARY("mad.hi." TYPE))
    PUT(div, BINARY("div." TYPE))
    PUT(rem, BINARY("rem." TYPE))
    PUT(min, BINARY("min." TYPE))
    PUT(max, BINARY("max." TYPE))
    PUT(sad, TERNARY("sad." TYPE))
    PUT(bit_and, BINARY("and." BITS))
    PUT(bit_or, BINARY("or." BITS))
    PUT(bit_xor, BINARY("xor." BITS))
    PUT(bit_not, UNARY("not." BITS))
    PUT(shl, SHIFT("shl." BITS, (unsigned)b))
    PUT(shl_around_width, SHIFT("shl." BITS, (unsigned)(b & 127)))
    PUT(shr, SHIFT("shr." TYPE, (unsigned)b))
    PUT(shr_around_width, SHIFT("shr." TYPE, (unsigned)(b & 127)))
    PUT(shr_bits, SHIFT("shr." BITS, (unsigned)(b & 63)))
}

#ifdef SIGNED
extern "C" __global__ void sign(const T *as, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i];
    PUT(neg, UNARY("neg." TYPE))
    PUT(abs, UNARY("abs." TYPE))
}
#endif

#if WIDTH >= 32
extern "C" __global__ void bits(const T *as, const T *bs, const T *cs, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i], b = bs[i], c = cs[i];
    unsigned position = (unsigned)b & 127, length = (unsigned)c & 127;
    T field;
    PUT(popc, COUNT("popc." BITS))
    PUT(clz, COUNT("clz." BITS))
    PUT(bfind, COUNT("bfind." TYPE))
    PUT(bfind_shiftamt, COUNT("bfind.shiftamt." TYPE))
    PUT(brev, UNARY("brev." BITS))
    asm volatile("bfe." TYPE " %0, %1, %2, %3;" : "=" REGISTER(field) : REGISTER(a), "r"(position), "r"(length));
    PUT(bfe, field)
    asm volatile("bfe." TYPE " %0, %1, %2, %3;" : "=" REGISTER(field) : REGISTER(a), "r"(position & 31), "r"(length & 15));
    PUT(bfe_inside, field)
    asm volatile("bfi." BITS " %0, %1, %2, %3, %4;"
                 : "=" REGISTER(field)
                 : REGISTER(a), REGISTER(b), "r"(length), "r"(position));
    PUT(bfi, field)
    asm volatile("bfi." BITS " %0, %1, %2, %3, %4;"
                 : "=" REGISTER(field)
                 : REGISTER(a), REGISTER(b), "r"(position & 31), "r"(length & 15));
    PUT(bfi_inside, field)
}
#endif

#if WIDTH <= 32
#if WIDTH == 16
typedef unsigned Wide;
#define WIDE "r"
#else
typedef unsigned long long Wide;
#define WIDE "l"
#endif

extern "C" __global__ void widening(const T *as, const T *bs, const T *cs, Wide *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i], b = bs[i];
    Wide c = ((Wide)cs[i] << WIDTH) ^ cs[(i + 1) % n], product, sum;
    asm volatile("mul.wide." TYPE " %0, %1, %2;" : "=" WIDE(product) : REGISTER(a), REGISTER(b));
    PUT(mul_wide, product)
    asm volatile("mad.wide." TYPE " %0, %1, %2, %3;" : "=" WIDE(sum) : REGISTER(a), REGISTER(b), WIDE(c));
    PUT(mad_wide, sum)
}
#endif
