// Logic on predicate registers themselves. One row of `out` for each PUT.
#define PUT(name, value) out[row++ * n + i] = (value);
#define LOGIC(text)                                                                                               \
    ([&] {                                                                                                        \
        int d;                                                                                                    \
        asm volatile("{ .reg .pred p, q, r; setp.ne.u32 p, %1, 0; setp.ne.u32 q, %2, 0; " text                    \
                     " selp.u32 %0, 1, 0, r; }" : "=r"(d) : "r"(a & 1), "r"(b & 1));                              \
        return d;                                                                                                 \
    }())

extern "C" __global__ void predicates(const unsigned *as, const unsigned *bs, unsigned char *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    unsigned a = as[i], b = bs[i];
    PUT(and_pred, LOGIC("and.pred r, p, q;"))
    PUT(or_pred, LOGIC("or.pred r, p, q;"))
    PUT(xor_pred, LOGIC("xor.pred r, p, q;"))
    PUT(not_pred, LOGIC("not.pred r, p;"))
    PUT(mov_pred, LOGIC("mov.pred r, q;"))
    PUT(guarded_setp, LOGIC("mov.pred r, q; @p setp.eq.u32 r, %2, 0;"))
    PUT(guarded_branch, LOGIC("mov.pred r, 0; @!p bra SKIP; mov.pred r, 1; SKIP: or.pred r, r, q;"))
    PUT(short_circuit, (a & 4) && (b & 4) || !(a & 8))
    PUT(chain, a % 3 == 0 ? b % 5 == 1 : (a > b) ^ (a & 1))
}
