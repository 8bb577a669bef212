"""Mutants of PTX texts, and what the simulated GPU makes of them.

By hand: `python tests/simulated/mutants.py 10000 [first seed]` tries as many, and prints undeclared errors.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.protocol import DeviceError, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.device import SimulatedMemory
from pytest_gpulab.devices.simulated.module import SimulatedModule

SOLUTIONS = Path(__file__).parents[2] / "solutions"
MACROS = {"GPULAB_T": "float", "GPULAB_IDENTITY": "0.0f", "GPULAB_OP(a, b)": "((a) + (b))"}
SOURCES = ("reduction/11_vector_grid_stride.cu", "scan/06_single_pass.cu")
INLINE_ASSEMBLY = """
__device__ __constant__ float table[4] = {1, 2, 3, 4};
__device__ __noinline__ int twice(int x) { return x * 2 + threadIdx.x; }
extern "C" __device__ int printf(const char *, ...);
__global__ void assembly(unsigned *out, unsigned n) {
    __shared__ __align__(32) unsigned tile[128];
    unsigned t = threadIdx.x, d = 0, e = 0;
    unsigned long long wide = n;
    float f = table[t & 3];
    double g = f;
    asm volatile("{ .reg .pred p; .reg .b32 x<4>; setp.lt.u32 p, %1, 16; @p mov.u32 x1, 5; @!p mov.b32 x1, %1;"
                 "  mad.lo.u32 %0, x1, %1, 7; }" : "=r"(d) : "r"(t));
    asm volatile("prmt.b32 %0, %1, %2, 0x5410; bfe.u32 %0, %0, 3, 7; lop3.b32 %0, %0, %1, %2, 0x96;"
                 : "+r"(e) : "r"(d), "r"(t));
    asm volatile("add.cc.u32 %0, %0, %2; addc.u32 %1, %1, 0;" : "+r"(d), "+r"(e) : "r"(n));
    asm volatile("{ .reg .b64 a; mul.wide.u32 a, %1, 3; add.u64 %0, %0, a; shr.u64 %0, %0, 2; }"
                 : "+l"(wide) : "r"(d));
    asm volatile("fma.rn.f32 %0, %0, %0, 0f3F800000; sqrt.rn.f32 %0, %0; ex2.approx.ftz.f32 %0, %0;" : "+f"(f));
    asm volatile("fma.rz.f64 %0, %0, 1.5, %0; cvt.rzi.s32.f64 %1, %0;" : "+d"(g), "=r"(e));
    asm volatile("{ .reg .u64 s; cvta.to.shared.u64 s, %0; st.shared.v2.u32 [s], {%1, %2}; bar.sync 0;"
                 "  ld.shared.u32 %1, [s+4]; }" :: "l"(&tile[t & ~1u]), "r"(d), "r"(e));
    asm volatile("{ .reg .pred q; .reg .b32 m; vote.sync.any.pred q, q, -1; activemask.b32 m;"
                 "  shfl.sync.bfly.b32 %0|q, %0, 1, 31, -1; match.any.sync.b32 m, %0, -1;"
                 "  redux.sync.add.u32 m, m, -1; }"
                 : "+r"(d));
    asm volatile("atom.global.add.u32 %0, [%1], %2; red.global.max.u32 [%1+4], %2; membar.gl; fence.acq_rel.gpu;"
                 : "=r"(e) : "l"(out), "r"(t));
    asm volatile("{ .reg .b32 i; rem.u32 i, %0, 3; ways: .branchtargets A, B, C; brx.idx i, ways;"
                 "  A: add.u32 %0, %0, 1; bra.uni C; B: xor.b32 %0, %0, 9; C: }" : "+r"(d));
    asm volatile("{ .reg .b32 k; mov.u32 k, 0; LOOP: add.u32 k, k, 1;"
                 "  .reg .pred r; setp.lt.u32 r, k, %0; @r bra LOOP; }"
                 :: "r"(t & 3));
    asm volatile("{ .param .b32 a; .param .b32 r; st.param.b32 [a], %0; }" :: "r"(d));
    asm volatile("{ .reg .b32 a<4>, s<8>; ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {a0, a1}, [%0];"
                 "  mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32 {s0, s1}, {a0}, {a1}, {%1, %1};"
                 "  movmatrix.sync.aligned.m8n8.trans.b16 a2, s0;"
                 "  wmma.load.a.sync.aligned.row.m16n16k16.shared.u8 {a0, a1}, [0], 16;"
                 "  wmma.load.b.sync.aligned.col.m16n16k16.shared.u8 {a2, a3}, [0];"
                 "  wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32.satfinite {s0, s1, s2, s3, s4, s5, s6, s7},"
                 "  {a0, a1}, {a2, a3}, {%1, %1, %1, %1, %1, %1, %1, %1};"
                 "  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {s7};"
                 "  wmma.store.d.sync.aligned.col.m8n8k4.shared.f64 [0], {%2, %2}; }"
                 :: "r"(16 * (t & 15)), "r"(d), "d"(g) : "memory");
    int local[8];
    for (int i = 0; i < 8; ++i) local[i] = twice(i + e);
    if (n == 7) printf("%d %f", d, g);
    out[t] = d + e + wide + (unsigned)f + local[d & 7];
}
"""
TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|[\w$%.]+|\s+|.', re.S)
NUMBERS = ("0", "-1", "1", "4", "32", "255", "0x7fffffff", "4294967296", "99999999999999999999", "0f", "1e400", "08")
TYPES = ["u8", "s64", "f32", "f64", "pred", "b128", "v2", "sat", "wide", ""]
WORDS = (
    "", ";", "{", "}", "[", "]", "(", ")", ",", "|", "@", "!", ":", '"', "/*", "//", ".u32", ".f64", ".pred", ".v4",
    ".global", ".param", ".shared", "ld.param.u32", "mov.b64", "call", "bra", "ret", "%r1", "%rd1", "%p1", "%f1", "_",
    "%tid.x", "%envreg1", "[%rd1]", "{%r1, %r2}", ".reg .b32 %r<9>", "add.u32", "setp.lt.f32", "brx.idx", "bar.sync",
    "shfl.sync.bfly.b32", ".loc 1 2 3", ".section", ".func", ".entry", "\n", "$L", "+", "-8", "generic(x)", "\u00e9",
    "\0", "<9>", ".b8", ".row", ".m16n8k16", ".f16", ".tf32", "wmma", ".load", "mma.sync",
)  # fmt: skip


@lru_cache(maxsize=1)
def originals() -> tuple[str, ...]:
    """Return the texts to be changed: of two solutions, and of a kernel with much inline assembly."""
    sources = [INLINE_ASSEMBLY, *((SOLUTIONS / name).read_text() for name in SOURCES)]
    texts = (nvrtc.compile_ptx(source, "kernel.cu", "compute_90", MACROS)[0] for source in sources)
    # the assembler refuses most mutants: here the reader is on its own
    return tuple(text.replace("begin inline asm", "what follows was written by hand") for text in texts)


def mutant(seed: int) -> str:
    """Return one of the texts with one to four random changes."""
    rng = random.Random(seed)
    text = rng.choice(originals())
    start = text.index(".entry") if rng.random() < 0.7 else 0  # most in the kernel itself
    head, tokens = text[:start], TOKEN.findall(text[start:])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if tokens:
            _change(rng, tokens)
    return head + "".join(tokens)


def _change(rng: random.Random, tokens: list[str]) -> None:
    at = rng.randrange(len(tokens))
    for _ in range(20):  # seldom blanks or comments
        if tokens[at].strip() and not tokens[at].startswith("//"):
            break
        at = rng.randrange(len(tokens))
    rng.choice((_replace, _replace, _insert, _swap, _mistype, _cut))(rng, tokens, at)


def _replace(rng: random.Random, tokens: list[str], at: int) -> None:
    tokens[at] = rng.choice(rng.choice((WORDS, NUMBERS, tokens)))


def _insert(rng: random.Random, tokens: list[str], at: int) -> None:
    tokens[at:at] = [rng.choice(WORDS)] if rng.random() < 0.5 else tokens[at : at + rng.randrange(1, 12)]


def _swap(rng: random.Random, tokens: list[str], at: int) -> None:
    other = rng.randrange(len(tokens))
    tokens[at], tokens[other] = tokens[other], tokens[at]


def _mistype(rng: random.Random, tokens: list[str], at: int) -> None:
    parts = tokens[at].split(".")
    parts[rng.randrange(len(parts))] = rng.choice(TYPES)
    tokens[at] = ".".join(parts)


def _cut(rng: random.Random, tokens: list[str], at: int) -> None:
    del tokens[at : at + rng.choice((1, 1, 1, rng.randrange(1, 40)))]


def _argument(device: SimulatedDevice, nbytes: int) -> SimulatedMemory | np.generic:
    if nbytes == 8:
        return device.array(np.zeros(1024, np.uint32))
    scalar: np.generic = np.zeros(1, f"V{max(nbytes, 1)}")[0]
    return scalar


def attempt(text: str, limit_s: float = 2.0) -> str:
    """Read, translate and launch all of a text's kernels; return the name of the error that was declared, if any.

    Raises:
        Exception: what must not be raised.
    """
    device, options = SimulatedDevice(), LaunchOptions(check=True, time_limit_s=limit_s)
    try:
        module = SimulatedModule(device, text, "", ("", "kernel.cu"))
        for kernel in module.kernels:
            arguments = [_argument(device, nbytes) for nbytes in module.parameter_bytes(kernel)]
            module.launch(kernel, (1,), (64,), arguments, options=options)
    except DeviceError as error:
        return type(error).__name__
    finally:
        device.close()
    return "none"


def main(count: int, first: int) -> None:
    """Try mutants and print what they raise."""
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            found[attempt(mutant(seed))] += 1
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            key = f"UNDECLARED {type(error).__name__} {Path(frame.filename).name}:{frame.lineno} {frame.line}"
            if not found[key]:
                print(seed, key, error, flush=True)
            found[key] += 1
    for key, times in found.most_common():
        print(times, key)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
