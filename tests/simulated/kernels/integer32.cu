// Integer instructions that exist for 32 bits only. One row of `out` for each PUT.
#define PUT(name, value) out[row++ * n + i] = (value);
#define BINARY(text) ([&] { unsigned d; asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }())
#define TERNARY(text) \
    ([&] { unsigned d; asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }())
#define LOP3(table)                                                                                         \
    ([&] {                                                                                                  \
        unsigned d;                                                                                         \
        asm volatile("lop3.b32 %0, %1, %2, %3, " #table ";" : "=r"(d) : "r"(a), "r"(b), "r"(c));            \
        return d;                                                                                           \
    }())

extern "C" __global__ void only_32(const unsigned *as, const unsigned *bs, const unsigned *cs, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    unsigned a = as[i], b = bs[i], c = cs[i];
    PUT(add_sat, BINARY("add.sat.s32"))
    PUT(sub_sat, BINARY("sub.sat.s32"))
    PUT(mad_hi_sat, TERNARY("mad.hi.sat.s32"))
    PUT(mul24_lo_s, BINARY("mul24.lo.s32"))
    PUT(mul24_hi_u, BINARY("mul24.hi.u32"))
    PUT(mad24_lo_u, TERNARY("mad24.lo.u32"))
    PUT(shf_l_wrap, TERNARY("shf.l.wrap.b32"))
    PUT(shf_r_wrap, TERNARY("shf.r.wrap.b32"))
    PUT(shf_l_clamp, TERNARY("shf.l.clamp.b32"))
    PUT(shf_r_clamp, TERNARY("shf.r.clamp.b32"))
    PUT(dp4a_s_s, TERNARY("dp4a.s32.s32"))
    PUT(dp4a_u_u, TERNARY("dp4a.u32.u32"))
    PUT(dp4a_s_u, TERNARY("dp4a.s32.u32"))
    PUT(dp2a_lo_s_s, TERNARY("dp2a.lo.s32.s32"))
    PUT(dp2a_hi_u_s, TERNARY("dp2a.hi.u32.s32"))
    PUT(prmt, TERNARY("prmt.b32"))
    PUT(prmt_f4e, TERNARY("prmt.b32.f4e"))
    PUT(prmt_b4e, TERNARY("prmt.b32.b4e"))
    PUT(prmt_rc8, TERNARY("prmt.b32.rc8"))
    PUT(prmt_ecl, TERNARY("prmt.b32.ecl"))
    PUT(prmt_ecr, TERNARY("prmt.b32.ecr"))
    PUT(prmt_rc16, TERNARY("prmt.b32.rc16"))
    PUT(bmsk_clamp, BINARY("bmsk.clamp.b32"))
    PUT(bmsk_wrap, BINARY("bmsk.wrap.b32"))
    PUT(lop3_majority, LOP3(0xE8))
    PUT(lop3_parity, LOP3(0x96))
    PUT(lop3_select, LOP3(0xCA))
    PUT(lop3_odd, LOP3(0x1D))
    PUT(fns, ([&] {
            unsigned d, base = b & 31;
            int offset = (int)(c % 7) - 3;
            asm volatile("fns.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(base), "r"(offset));
            return d;
        }()))
    PUT(byte_perm, __byte_perm(a, b, c & 0x7777))
    PUT(vabsdiff, __vabsdiffu4(a, b))
    PUT(vadd, __vadd4(a, b))
    PUT(vmin, __vmins2(a, b))
    PUT(vcompare, __vcmpgtu4(a, b))
    PUT(rhadd, __rhadd((int)a, (int)b))
    PUT(ffs, __ffs((int)a))
}

// Multi-word arithmetic: the carry flag passes from one instruction to the next.
extern "C" __global__ void carries(const unsigned *as, const unsigned *bs, const unsigned *cs, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    unsigned a0 = as[i], a1 = bs[i], b0 = cs[i], b1 = as[(i + 7) % n], low, high, top;
    asm volatile("add.cc.u32 %0, %3, %5;\n\taddc.cc.u32 %1, %4, %6;\n\taddc.u32 %2, 0, 0;"
                 : "=r"(low), "=r"(high), "=r"(top)
                 : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
    PUT(add_cc, low)
    PUT(addc_cc, high)
    PUT(addc, top)
    asm volatile("sub.cc.u32 %0, %3, %5;\n\tsubc.cc.u32 %1, %4, %6;\n\tsubc.u32 %2, 0, 0;"
                 : "=r"(low), "=r"(high), "=r"(top)
                 : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
    PUT(sub_cc, low)
    PUT(subc_cc, high)
    PUT(subc, top)
    asm volatile("mad.lo.cc.u32 %0, %3, %5, %4;\n\tmadc.hi.cc.u32 %1, %3, %5, %6;\n\taddc.u32 %2, 0, 0;"
                 : "=r"(low), "=r"(high), "=r"(top)
                 : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
    PUT(mad_lo_cc, low)
    PUT(madc_hi_cc, high)
    PUT(addc_after_madc, top)
}
