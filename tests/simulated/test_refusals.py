"""The simulated GPU refuses unsupported instructions with instruction, file and line."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, CompileError, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

REFUSED = {
    "frobnicate.u32 %0, %1;": "the instruction frobnicate.u32",
    "add.u24 %0, %1, %1;": "the modifier .u24 of add.u24",
    "add.relu.u32 %0, %1, %1;": "the modifier .relu of add.relu.u32",
    "add.rn.u32 %0, %1, %1;": "the modifier .rn of add.rn.u32",
    "add.u32 %0, %1, %1, %1;": "4 operands in add.u32",
    "add.u32 %0, %1;": "2 operands in add.u32",
    "mul.wide.sat.f32 %0, %1, %1;": "the modifier .wide of mul.wide.sat.f32",
    "mul.cc.f16x2 %0, %1, %1;": "the modifier .cc of mul.cc.f16x2",
    "min.relu.u16x2 %0, %1, %1;": "the modifier .relu of min.relu.u16x2",
    "add.relu.s16x2 %0, %1, %1;": "the modifier .relu of add.relu.s16x2",
    "max.u32.relu %0, %1, %1;": "the modifier .relu of max.relu.u32",
    "mul.s16x2 %0, %1, %1;": "the instruction mul.s16x2",
    "rem.f32 %0, %1, %1;": "the instruction rem.f32",
    "addc.u32 %0, %1, %1;": "a carry flag across a jump in addc.u32",
    "lop3.b32 %0, %1, %1, %1, %1;": "a lookup table in a register in lop3.b32",
    "lop3.or.b32 %0, %1, %1, %1, 7;": "the modifier .or of lop3.or.b32",
    "sad.u32 %0, %1;": "the instruction sad.u32",
    "bfe.u32.banana %0, %1, 1, 2;": "the modifier .banana of bfe.u32.banana",
    "prmt.b32.f5e %0, %1, %1, 1;": "the modifier .f5e",
    "ex2.approx.sat.f32 %0, %1;": "the modifier .sat of ex2.approx.sat.f32",
    "cvt.rna.f16.f32 %0, %1;": "a conversion of this kind in cvt.rna.f16.f32",
    "cvt.rn.relu.tf32.f32 %0, %1;": "a conversion of this kind in cvt.rn.relu.tf32.f32",
    "cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %1;": "a conversion of this kind in cvt.rn.satfinite.relu.e4m3x2.f32",
    "cvt.rn.satfinite.f16.f32 %0, %1;": "a conversion of this kind in cvt.rn.satfinite.f16.f32",
    "{ .reg .b16 h; cvt.rm.bf16.f32 h, %1; }": "rounding mode rm to bfloat16 in cvt.rm.bf16.f32",
    "{ .reg .b16 h; .reg .b64 l; cvt.rn.bf16.s64 h, l; }": "a 64-bit integer to bfloat16 in cvt.rn.bf16.s64",
    "setp.closer.u32 p, %1, %1;": "the modifier .closer of setp.closer.u32",
    "{ .reg .b16 h; .reg .pred p; setp.eq.ftz.f16 p, h, h; }": "a comparison of this kind in setp.eq.ftz.f16",
    "{ .reg .pred p; setp.eq.f16x2 p, %1, %1; }": "a comparison of this kind in setp.eq.f16x2",
    "{ .reg .pred p; set.eq.and.u32.f16x2 %0, %1, %1, p; }": "a comparison of this kind in set.eq.and.u32.f16x2",
    "mov.u32 %0, %%reserved_smem_offset_end;": "the register or symbol %reserved_smem_offset_end in mov.u32",
    "mov.u32 {%0, %0}, {%1, %1};": "a result of the form Vector in mov.u32",
    "mov.u32 %0, [%1];": "an operand of the form Address in mov.u32",
    "ld.global.u32 %0;": "the instruction ld.global.u32",
    "mov.b32 %0;": "the instruction mov.b32",
    "atom.global.cas.b32 %0, [%1], %1;": "3 operands in atom.global.cas.b32",
    "ld.global.u32 %0, %1;": "an address of this form in ld.global.u32",
    "ld.param.u32 %0, %1;": "an address of this form",
    "ld.global.somehow.u32 %0, [%1];": "the modifier .somehow of ld.global.somehow.u32",
    "st.global.u32 %1, %1;": "an address of this form in st.global.u32",
    "st.async.global.u32 [%1], %1;": "the modifier .async of st.async.global.u32",
    "atom.global.add.u32 %0, %1, %1;": "an atomic operation of this kind in atom.global.add.u32",
    "atom.global.min.noftz.f16x2 %0, [%1], %1;": "an atomic operation of this kind",
    "atom.global.add.L2::cache_hint.u32 %0, [%1], %1, %1;": "the modifier .L2__cache_hint",
    "red.async.global.add.u32 [%1], %1;": "the modifier .async of red.async.global.add.u32",
    "cvta.param.u64 %0, %1;": "the modifier .param of cvta.param.u64",
    "isspacep.const p, %1;": "the modifier .const of isspacep.const",
    "redux.sync.min.f32 %0, %1, -1;": "a warp reduction of floats in redux.sync.min.f32",
    "redux.sync.min.abs.f32 %0, %1, -1;": "the modifier .abs of redux.sync.min.abs.f32",
    "elect.sync %0, -1;": "an election of this form in elect.sync",
    "shfl.sync.sideways.b32 %0, %1, 1, 31, -1;": "the modifier .sideways",
    "shfl.sync.b32 %0, %1, 1, 31, -1;": "the instruction shfl.sync.b32",
    "bar.banana 0;": "the instruction bar.banana",
    "bra %1;": "the instruction bra",
    "bra NOWHERE;": "a jump to NOWHERE",
    "brx.idx %1, NOWHERE;": "the instruction brx.idx",
    "call (%0), unheard_of, (%1);": "a call of unheard_of()",
    "{ .reg .b64 at; mov.b64 at, 16; P: .callprototype _ (.param .b32 _); call at, (x), P; }": "a call of at@",
    "mbarrier.shared.b64 [%1], 4;": "the instruction mbarrier.shared.b64",
    "mbarrier.init.shared.b64 %1, 4;": "an address of this form in mbarrier.init.shared.b64",
    "mbarrier.init.shared.b64 [%1];": "the instruction mbarrier.init.shared.b64",
    "mbarrier.init.sideways.b64 [%1], 4;": "the modifier .sideways of mbarrier.init.sideways.b64",
    "and.pred p, !5, q;": "the PTX statement 'and.pred p, !5, q'",
    "mov.u32 %0, 0fxyz;": "the PTX statement",
    "mov.u32 %0, 0b2;": "the PTX statement",
    "ld.global.u32 %0, [%1 + ];": "the PTX address [",
    "ld.global.u32 %0, [{%1, %1}];": "the PTX ",
    "call;": "the PTX call 'call'",
    "{ .reg oops; }": "the PTX declaration '.reg oops'",
}


@pytest.mark.usefixtures("no_assembler")
@pytest.mark.parametrize("text", REFUSED)
def test_unknown_instruction_is_refused_with_its_place(device: SimulatedDevice, text: str) -> None:
    source = f"""__global__ void f(unsigned *out) {{
    unsigned d = 0, a = out[0];
    asm volatile("{text}" : "+r"(d) : "r"(a)); // HERE
    out[0] = d;
}}"""
    with pytest.raises(CannotSimulate) as caught:
        device.compile(source).launch("f", (1,), (1,), [device.array(np.zeros(1, np.uint32))])
    assert REFUSED[text] in caught.value.what
    assert caught.value.where == marked(source)
    assert str(caught.value).startswith("cannot simulate ")


def test_function_of_another_file_is_refused(run: Run) -> None:
    source = "extern __device__ int elsewhere(int);\n__global__ void f(int *out) { out[0] = elsewhere(3); }\n"
    with pytest.raises(CompileError, match=r"kernel\.cu\(2\): error: the function `elsewhere` is called, but not "):
        run(source, np.zeros(1, np.int32))


def test_hints_and_harmless_modifiers_are_not_refused(run: Run) -> None:
    source = """__global__ void f(unsigned *data, unsigned *out) {
    unsigned long long policy;
    unsigned d, e;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.u32 %0, [%1], %2;"
                 : "=r"(d) : "l"(data), "l"(policy));
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1+4];" : "=r"(e) : "l"(data));
    asm volatile("prefetch.global.L2 [%0]; applypriority.global.L2::evict_normal [%0], 128;" :: "l"(data));
    asm volatile("st.global.wt.u32 [%0], %1; st.release.sys.global.u32 [%0+4], %2;" :: "l"(out), "r"(d), "r"(e));
}"""
    out = np.zeros(2, np.uint32)
    run(source, np.array([7, 9], np.uint32), out, block=(1,))
    assert out.tolist() == [7, 9]


def test_discarded_bytes_are_lost(run: Run) -> None:
    source = """__global__ void f(unsigned *data) {
    asm volatile("discard.global.L2 [%0+128], 128;" :: "l"(data));
}"""
    data = np.arange(96, dtype=np.uint32)
    run(source, data, block=(1,))
    assert np.flatnonzero(data != np.arange(96)).tolist() == list(range(32, 64))


CLUSTERS = "thread block clusters"
MAPPED = "__shared__ int x; x = 1; *cg::this_cluster().map_shared_rank(&x, 0) = 2; out[0] = x;"
FEATURES = {
    "out[threadIdx.x] = cg::this_cluster().block_rank();": CLUSTERS,
    "cg::this_cluster().sync();": CLUSTERS,
    MAPPED: CLUSTERS,
    'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;");': CLUSTERS,
    'asm volatile("cp.async.bulk.prefetch.L2.global [%0], 16;" :: "l"(out));': "bulk asynchronous copies (TMA): pre",
}


@pytest.mark.parametrize("body", FEATURES)
def test_a_feature_is_named_at_the_line_that_needs_it(run: Run, body: str) -> None:
    head = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;" if "cg::" in body else ""
    source = f"""{head}
__global__ void __cluster_dims__(2, 1, 1) f(int *out)
{{
    out[threadIdx.x] = 1;
    {body} // HERE
}}
"""
    with pytest.raises(CannotSimulate) as caught:
        run(source, np.zeros(64, np.int32), grid=(2,))
    assert caught.value.what.startswith(FEATURES[body])
    assert caught.value.where == marked(source)


def test_a_block_is_a_cluster_of_its_own(run: Run) -> None:
    source = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ void wait(cg::thread_group group) { group.sync(); }
__global__ void f(int *out, int rank)
{
    cg::cluster_group cluster = cg::this_cluster();
    __shared__ int x[64];
    x[threadIdx.x] = threadIdx.x;
    cluster.sync(); int *of_rank = cluster.map_shared_rank(x, rank); // HERE
    int place = cluster.block_rank() + 10 * cluster.num_blocks() + 100 * cluster.num_threads();
    wait(cluster);
    wait(cg::this_thread_block());
    out[blockIdx.x * 64 + threadIdx.x] = of_rank[63 - threadIdx.x] + place;
}
"""
    out = np.zeros(128, np.int32)
    run(source, out, np.int32(0), grid=(2,), block=(64,), options=LaunchOptions(check=True))
    assert out.tolist() == 2 * [63 - i + 10 + 6400 for i in range(64)]
    with pytest.raises(CannotSimulate, match=CLUSTERS) as caught:
        run(source, out, np.int32(1), grid=(2,), block=(64,))
    assert caught.value.where == marked(source)


def test_alloca_compiles_as_with_nvcc_and_is_refused_where_it_is_launched(run: Run) -> None:
    source = (
        "#include <alloca.h>\n__global__ void f(int *p) {\n int *a = (int *)alloca(4); // HERE\n a[0] = 1; *p = a[0]; }"
    )
    with pytest.raises(CannotSimulate, match=r"a call of alloca\(\)") as caught:
        run(source, np.zeros(1, np.int32))
    assert caught.value.where == marked(source)


def test_a_kernel_that_takes_minutes_to_translate_is_refused(device: SimulatedDevice) -> None:
    doubled = "\n".join(f"#define A{number} A{number - 1} A{number - 1}" for number in range(1, 17))
    source = f"""#define A0 "add.u32 %0, %0, 1;"
{doubled}
__global__ void f(unsigned *x) {{ unsigned q = x[0]; asm volatile(A16 : "+r"(q)); x[0] = q; }}"""
    module, x = device.compile(source), device.array(np.zeros(1, np.uint32))
    with pytest.raises(CannotSimulate, match=r"a kernel of 65,5\d\d instructions; the limit is 65,536"):
        module.launch("f", (1,), (1,), (x,))
