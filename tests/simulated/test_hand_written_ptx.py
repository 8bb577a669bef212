"""PTX that the compiler seldom writes: jump tables, guarded calls, parameters by address, declarations of all kinds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.module import SimulatedModule
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.ptx.syntax import Imm, Instruction, Reg, Sym

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """
.visible .entry f(.param .u64 f_param_0)
{{
    .reg .pred %p<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [f_param_0];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    {body}
    st.global.u32 [%rd3], %r2;
    ret;
}}
"""
RunPtx = Callable[..., list[int]]


@pytest.fixture
def run_ptx(device: SimulatedDevice) -> RunPtx:
    """Run the body of a kernel that leaves a result in %r2 of each of eight threads, with functions before it."""

    def launch(body: str, functions: str = "", **more: Any) -> list[int]:
        out = device.array(np.zeros(8, np.uint32))
        module = SimulatedModule(device, HEAD + functions + KERNEL.format(body=body), "", ())
        profile: LaunchProfile = module.launch("f", (1,), (8,), [out], **more)
        assert profile.hazards == ()
        return [int(value) for value in out.get()]

    return launch


def test_jump_table(run_ptx: RunPtx) -> None:
    body = """
    ways: .branchtargets WAY0, WAY1, WAY2;
    rem.u32 %r3, %r1, 3;
    brx.idx %r3, ways;
WAY0: mov.u32 %r2, 10;
    bra DONE;
WAY1: mov.u32 %r2, 11;
    bra DONE;
WAY2: mov.u32 %r2, 12;
DONE:
"""
    assert run_ptx(body) == [10, 11, 12, 10, 11, 12, 10, 11]


def test_an_index_beyond_a_jump_table_ends_the_kernel(run_ptx: RunPtx) -> None:
    body = "ways: .branchtargets DONE, DONE;\n mov.u32 %r2, 1;\n brx.idx %r1, ways;\nDONE:\n"
    with pytest.raises(KernelFault, match="a jump through a table of 2 labels with index 7"):
        run_ptx(body)


def test_jump_table_in_a_function_of_which_there_are_two_copies(run_ptx: RunPtx) -> None:
    functions = """
.func (.param .b32 r) pick(.param .b32 pick_param_0)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [pick_param_0];
    ways: .branchtargets EVEN, ODD;
    and.b32 %r1, %r1, 1;
    brx.idx %r1, ways;
EVEN: mov.u32 %r2, 5;
    bra OUT;
ODD: mov.u32 %r2, 7;
OUT:
    st.param.b32 [r], %r2;
    ret;
}
"""
    call = """
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], {given};
    call (b), pick, (a);
    ld.param.b32 {result}, [b]; }}
"""
    body = call.format(given="%r1", result="%r4") + call.format(given="1", result="%r5") + "add.u32 %r2, %r4, %r5;"
    assert run_ptx(body, functions) == [12, 14] * 4


SUM_OF_BYTES = """
.func (.param .b32 r) total(.param .align 8 .b8 total_param_0[16], .param .b32 total_param_1)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u32 %r1, [total_param_1];
    mov.b64 %rd1, total_param_0;
    cvt.u64.u32 %rd2, %r1;
    add.u64 %rd3, %rd1, %rd2;
    ld.param.u8 %r2, [%rd3];
    st.param.b32 [r], %r2;
    ret;
}
"""


def test_parameter_read_by_its_address(run_ptx: RunPtx) -> None:
    """Each lane reads another byte of a structure that was passed by value."""
    body = """
    { .param .align 8 .b8 a[16]; .param .b32 b; .param .b32 c;
    st.param.b64 [a], 0x0706050403020100; st.param.b64 [a+8], 0; st.param.b32 [b], %r1;
    call (c), total, (a, b);
    ld.param.b32 %r2, [c]; }
"""
    assert run_ptx(body, SUM_OF_BYTES) == list(range(8))


def test_parameter_written_whole_and_read_in_parts(run_ptx: RunPtx) -> None:
    functions = """
.func (.param .b32 r) high(.param .b64 high_param_0)
{
    .reg .b32 %r<9>;
    ld.param.v2.u32 {%r1, %r2}, [high_param_0];
    add.u32 %r3, %r1, %r2;
    st.param.b32 [r], %r3;
    ret;
}
"""
    body = """
    cvt.u64.u32 %rd4, %r1; shl.b64 %rd5, %rd4, 32; or.b64 %rd4, %rd4, %rd5;
    { .param .b64 a; .param .b32 c; st.param.b64 [a], %rd4;
    call (c), high, (a);
    ld.param.b32 %r2, [c]; }
"""
    assert run_ptx(body, functions) == [2 * lane for lane in range(8)]


def test_guarded_call_and_return(run_ptx: RunPtx) -> None:
    functions = """
.func (.param .b32 r) bump(.param .b32 bump_param_0)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [bump_param_0];
    st.param.b32 [r], %r1;
    setp.gt.u32 %p1, %r1, 5;
    @%p1 ret;
    add.u32 %r2, %r1, 100;
    st.param.b32 [r], %r2;
    ret;
}
"""
    body = """
    mov.u32 %r2, 0;
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p1, %r3, 1;
    { .param .b32 a; .param .b32 c;
    st.param.b32 [a], %r1; st.param.b32 [c], 9;
    @%p1 call (c), bump, (a);
    ld.param.b32 %r2, [c]; }
"""
    assert run_ptx(body, functions) == [9, 101, 9, 103, 9, 105, 9, 7]


def test_scopes_hide_names_and_labels(run_ptx: RunPtx) -> None:
    body = """
    mov.u32 %r2, 0;
    { .reg .pred p; .reg .b32 x; mov.u32 x, 1; setp.lt.u32 p, %r1, 4; @p bra SKIP;
      { .reg.b32 x; mov.u32 x, 50; @p bra SKIP; add.u32 %r2, %r2, x; SKIP: add.u32 %r2, %r2, 8; }
      SKIP: add.u32 %r2, %r2, x; }
"""
    assert run_ptx(body) == [1] * 4 + [59] * 4


def test_values_in_all_notations(run_ptx: RunPtx) -> None:
    body = """
    .reg .f32 %f<4>; .reg .f64 %fd<4>; .reg .b16 %rs<4>;
    mov.u32 %r2, 0x10; add.u32 %r2, %r2, 010; add.u32 %r2, %r2, 3U; add.s32 %r2, %r2, -1;
    mov.f32 %f1, 1.5; cvt.rzi.u32.f32 %r3, %f1; add.u32 %r2, %r2, %r3;
    mov.f32 %f2, 0f40000000; cvt.rzi.u32.f32 %r3, %f2; add.u32 %r2, %r2, %r3;
    mov.f64 %fd1, 0d4010000000000000; cvt.rzi.u32.f64 %r3, %fd1; add.u32 %r2, %r2, %r3;
    mov.f32 %f3, -2e1; cvt.rzi.s32.f32 %r3, %f3; sub.u32 %r2, %r2, %r3;
    mov.b32 {%rs1, _}, %r2; mov.b32 %r2, {%rs1, 1};
"""
    assert run_ptx(body) == [(0x10 + 0o10 + 3 - 1 + 1 + 2 + 4 + 20) | 1 << 16] * 8


def test_unused_results(run_ptx: RunPtx) -> None:
    body = """
    mov.u32 %r2, 5;
    atom.global.add.u32 _, [%rd3], 40;
    ld.global.u32 %r2, [%rd3];
    ld.global.v2.u32 {_, %r4}, [%rd1];
    shfl.sync.idx.b32 _, %r1, 0, 31, 255;
    add.u32 %r2, %r2, %r4;
"""
    assert run_ptx(body) == [80] * 8


def test_trap_in_one_branch_ends_the_block_of_code(run_ptx: RunPtx) -> None:
    body = "setp.gt.u32 %p1, %r1, 100; @!%p1 bra FINE; trap; FINE: mov.u32 %r2, 3;"
    assert run_ptx(body) == [3] * 8


def test_parameters_of_the_kernel_by_address(device: SimulatedDevice) -> None:
    text = HEAD + KERNEL.format(body="mov.b64 %rd4, f_param_0; ld.param.u64 %rd5, [%rd4]; cvt.u32.u64 %r2, %rd5;")
    out = device.array(np.zeros(8, np.uint32))
    SimulatedModule(device, text, "", ()).launch("f", (1,), (8,), [out])
    assert set(out.get()) == {np.uint32(out.allocation.base & 0xFFFFFFFF)} if out.allocation else False


def test_printf_with_its_format_in_pieces_is_refused(device: SimulatedDevice) -> None:
    body = """
    { .param .b64 a; .param .b64 b; .param .b32 c;
    st.param.b32 [a], 0; st.param.b32 [a+4], 0; st.param.b64 [a], 0; st.param.b64 [b], 0;
    call (c), vprintf, (a, b); }
"""
    extern = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    module = SimulatedModule(device, HEAD + extern + KERNEL.format(body=body), "", ())
    with pytest.raises(CannotSimulate, match="a printf argument in overlapping pieces"):
        module.launch("f", (1,), (8,), [device.array(np.zeros(8, np.uint32))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".banana { ret; }", "the PTX declaration '.banana'"),
        (".func f(.param .banana) { ret; }", "the PTX declaration '.param .banana'"),
    ],
)
def test_declaration_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(CannotSimulate, match="cannot simulate") as caught:
        parse(HEAD + text)
    assert caught.value.what == message


def test_reader_on_comments_strings_and_forward_declarations() -> None:
    module = parse(
        HEAD
        + """
.extern .func later(.param .b32 x);
.func later(.param .b32 x);
/* not { this } */
.global .align 1 .b8 text[12] = {34, 47, 47, 59, 0};
.global .align 8 .u64 table[2] = {text, generic(text) + 4};
.func later(.param .b32 x) { .reg .b32 %a; // nor { this
  mov.u32 %a, -3; ret; }
"""
    )
    assert module.variables["text"].data == b'"//;\0'
    assert module.variables["text"].nbytes == 12
    assert module.variables["table"].pointers == ((0, "text", 0), (8, "text", 4))
    first, second = module.functions["later"].body
    assert isinstance(first, Instruction)
    assert isinstance(second, Instruction)
    assert (first.name, first.operands, second.name) == ("mov.u32", (Reg("%a"), Imm(-3)), "ret")


def test_symbol_with_an_offset() -> None:
    text = ".global .b32 x[4];\n.func g() { .reg .b64 %a; mov.u64 %a, x+8; ret; }"
    statement = parse(HEAD + text).functions["g"].body[0]
    assert isinstance(statement, Instruction)
    assert statement.operands[1] == Sym("x", 8)


def test_a_long_table_is_read_in_no_time() -> None:
    values = ", ".join(map(str, range(20_000)))
    begin_s = time.process_time()
    module = parse(f"{HEAD}.global .align 4 .u32 table[20000] = {{{values}}};\n")
    assert time.process_time() - begin_s < 2
    assert np.array_equal(np.frombuffer(module.variables["table"].data, np.uint32), np.arange(20_000))
