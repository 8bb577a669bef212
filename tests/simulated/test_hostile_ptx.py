"""PTX that deceives or exhausts the simulated GPU: comments in comments, bombs of calls and registers, mutants."""

from __future__ import annotations

import resource
import time

import mutants
import numpy as np
import pytest
from places import Run, marked
from searches import examples

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault
from pytest_gpulab.devices.simulated.ptx import syntax
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.ptx.syntax import pieces, variable_of, without_comments

SEEDS = range(150, 150 + examples(100))


def grows_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ("// /*\\n add.s32 %0, %0, 4;\\n // */", 7),
        ("/* // */ add.s32 %0, %0, 4;", 7),
        ('// \\" /*\\n add.s32 %0, %0, 4; // \\" */', 7),
        ("/* add.s32 %0, %0, 4; // */", 3),
        ("/* \\n // add.s32 %0, %0, 4; */ add.s32 %0, %0, 1;", 4),
        ("// add.s32 %0, %0, 4;\\n", 3),
        ('/* \\" */ add.s32 %0, %0, 4; /* \\" */', 7),
    ],
)
def test_comments_end_where_the_assembler_ends_them(run: Run, hidden: str, expected: int) -> None:
    out = np.zeros(1, np.int32)
    asm = f'asm volatile("{hidden}" : "+r"(v));'
    run(f"__global__ void f(int *p) {{ int v = 3; {asm} *p = v; }}", out, block=(1,))
    assert out[0] == expected


def test_comments_and_strings() -> None:
    text = 'a "//" b // "c" /*\nd /* "e */ f "/*" g /* open'
    assert without_comments(text).split() == ["a", '"//"', "b", "d", "f", '"/*"', "g"]
    cut = [(".pragma ", '"no;{}"'), ("", ";"), ("\n", "{"), (" x ", "}"), ("", "")]
    assert pieces('.pragma "no;{}";\n{ x }') == cut


def test_a_section_hides_no_instruction(run: Run) -> None:
    """The reader once took `.section` for the end of the text."""
    source = """__global__ void f(int *p) {
    asm volatile(".section .debug { .b8 1 }"); // HERE
    *p = 3;
}"""
    with pytest.raises(Exception, match="section"):
        run(source, np.zeros(1, np.int32), block=(1,))


def test_file_scope_assembly_does_not_disturb(run: Run) -> None:
    out = np.zeros(1, np.int32)
    run('asm("// /*\\n.global .b32 hidden = 7;\\n// */");\n__global__ void f(int *p) { *p = 3; }', out, block=(1,))
    assert out[0] == 3


TREE = "__device__ __noinline__ int f0(int x) { return x * x; }\n" + "\n".join(
    f"__device__ __noinline__ int f{n}(int x) {{ return f{n - 1}(x + 1) ^ f{n - 1}(x * 3); }}" for n in range(1, 25)
)


def test_calls_that_double_at_each_level_cost_nothing_until_they_are_made(run: Run) -> None:
    """24 levels of two calls would need 2**24 inlined copies."""
    source = f"{TREE}\n__global__ void f(int *p, int n) {{\n if (n == 7) *p = f24(n); // HERE\n else *p = f3(n); }}"
    before_s, before_kib = time.process_time(), grows_kib()
    out = np.zeros(1, np.int32)
    run(source, out, np.int32(2), block=(1,))
    assert out[0] == tree(3, 2)
    with pytest.raises(
        CannotSimulate, match=r"a call of f24\(\): more than 100,000 instructions after inlining"
    ) as caught:
        run(source, np.zeros(1, np.int32), np.int32(7), block=(1,))
    assert caught.value.where == marked(source)
    assert time.process_time() - before_s < 20  # seconds; with every copy made it would be hours
    assert grows_kib() - before_kib < 200 << 10


def tree(level: int, x: int) -> int:
    return x * x if level == 0 else tree(level - 1, x + 1) ^ tree(level - 1, x * 3)


def test_calls_deeper_than_the_translator_goes(run: Run) -> None:
    chain = "__device__ __noinline__ int f0(int x) { return x + threadIdx.x; }\n" + "\n".join(
        f"__device__ __noinline__ int f{n}(int x) {{ return f{n - 1}(x * 3) + 1; }}" for n in range(1, 60)
    )
    source = f"{chain}\n__global__ void f(int *p, int n) {{ *p = n ? f20(n) : f59(n); }}"
    run(source, np.zeros(1, np.int32), np.int32(1), block=(1,))
    with pytest.raises(CannotSimulate, match=r"a call of f\d+\(\): more than 32 nested calls"):
        run(source, np.zeros(1, np.int32), np.int32(0), block=(1,))


def test_a_range_of_registers_takes_no_memory(run: Run) -> None:
    out = np.zeros(1, np.int32)
    asm = "{ .reg .b32 many<900000>; mov.b32 many89, 5; mov.b32 %0, many89; }"
    run(f'__global__ void f(int *p) {{ asm volatile("{asm}" : "=r"(*p)); }}', out, block=(1,))
    assert out[0] == 5
    before_s, before_kib = time.process_time(), grows_kib()
    functions = parse(".func f() { .reg .b32 many<90000000>; mov.b32 many89999999, 5; ret; }").functions
    assert functions["f"].registers == {"many89999999": "b32"}
    assert time.process_time() - before_s < 5
    assert grows_kib() - before_kib < 100 << 10


@pytest.mark.parametrize(("number", "is_known"), [("4", True), ("5", False), ("04", False)])
def test_a_range_ends_with_its_last_register(number: str, is_known: bool) -> None:
    function = parse(f".func f() {{ .reg .b32 r1<5>; mov.b32 r1{number}, 1; ret; }}").functions["f"]
    assert (f"r1{number}" in function.registers) == is_known


def test_a_read_beyond_the_arguments_is_a_fault(run: Run) -> None:
    source = """__global__ void f(int *p, int n) {
    asm volatile("ld.param.u32 %0, [%1];" : "=r"(*p) : "l"((long long)n));
}"""
    out = np.zeros(1, np.int32)
    run(source, out, np.int32(8), block=(1,))
    assert out[0] == 8
    for offset in (10, 4096, -8):
        with pytest.raises(KernelFault, match="a read of 4 bytes beyond the 12 bytes of the kernel's arguments"):
            run(source, np.zeros(1, np.int32), np.int32(offset), block=(1,))


def test_programmatic_launches_wait_for_nothing(run: Run) -> None:
    out = np.zeros(32, np.int32)
    wait, launch = (f'asm volatile("griddepcontrol.{what};");' for what in ("wait", "launch_dependents"))
    run(f"__global__ void f(int *p) {{ {wait} p[threadIdx.x] = 1; {launch} }}", out)
    assert out.all()


def test_the_originals_of_the_mutants_run() -> None:
    assert [mutants.attempt(text, limit_s=60) for text in mutants.originals()] == ["none"] * 3


@pytest.mark.unmeasured
def test_mutants_raise_declared_errors_alone() -> None:
    """Seeded: the same texts each time; `mutants.py` tries others by hand."""
    found = {mutants.attempt(mutants.mutant(seed)) for seed in SEEDS}
    assert found <= {"none", "CannotSimulate", "KernelFault", "LaunchError", "CompileError"}
    assert {"none", "CannotSimulate", "KernelFault"} <= found


def test_a_table_of_bytes_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC writes tables of any type in bytes: read one by one, a megabyte takes 5 s, in each variant again."""
    text = ".global .align 4 .b8 table[8] = {{1, 0, 255},\n{ 10, 256 }, 7}"
    one_by_one = variable_of(text.replace(" 256 ", " 0x100 "))
    monkeypatch.setattr(syntax, "immediate", None)
    found = variable_of(text)
    assert found == one_by_one and found.data == bytes([1, 0, 255, 10, 0, 7])


def test_octal_numbers_stay_octal() -> None:
    assert variable_of(".global .b8 table[3] = {012, 0, 1}").data == bytes([8 + 2, 0, 1])
