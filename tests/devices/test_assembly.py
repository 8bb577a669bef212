"""Inline assembly cannot move an instruction into another line or file."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.compiler.sandbox import NOT_ENDED
from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.ptx.source_lines import at_source_lines

HEAD = '#include "paths.cuh"\n__global__ void f(int *x)\n{\n'
PATHS = {"paths.cuh": "__device__ inline int twice(int x) { return 2 * x; }\n"}


def compiled(body: str, head: str = HEAD) -> str:
    return nvrtc.compile_ptx(f"{head}{body}\n    x[0] = twice(x[1]);\n}}\n", "kernel.cu", "compute_75", None, PATHS)[0]


@pytest.mark.parametrize(
    "body",
    [
        '    asm volatile(".loc 2 1 0;");',
        '    asm volatile("\\n.loc 2 1 0\\n");',
        '    asm volatile("// end inline asm\\n\\t.loc\\t2 1 0\\n\\t// begin inline asm");',
        '    asm volatile("{ .reg .u32 r; mov.u32 r, 1; } .l" "oc 2 1 0;");',
        '    asm volatile(".file 7 \\"paths.cuh\\"\\n.loc 7 1 0");',
        '    as\\\nm volatile("\\n.loc 2 1 0\\n");',
    ],
)
def test_assembly_that_moves_source_lines_is_refused(body: str) -> None:
    with pytest.raises(CompileError, match=r"kernel.cu: error: inline assembly with `.(loc|file)` is refused"):
        compiled(body)


def test_assembly_by_a_macro_that_pastes_is_refused() -> None:
    with pytest.raises(CompileError, match="is refused: it moves source lines"):
        compiled('    PASTE(as, m)("\\n.loc 2 1 0\\n");', f"#define PASTE(a, b) a##b\n{HEAD}")


def test_other_assembly_compiles_with_its_lines() -> None:
    assert ".loc" in compiled('    asm volatile("bar.sync 0;" ::: "memory");')


@pytest.mark.parametrize("assembly", ["frobnicate.b32 r;", ".section .debug_str { .b8 0 }"])
def test_the_assemblers_error_stands_at_its_source_line(assembly: str) -> None:
    source = f'__global__ void f(int *x)\n{{\n    x[0] = 1;\n    asm volatile("{assembly}");\n}}\n'
    with pytest.raises(CompileError) as caught:
        SimulatedDevice().compile(source, "kernel.cu")
    assert caught.value.diagnostics.startswith("kernel.cu(4): error: ")
    assert NOT_ENDED not in caught.value.diagnostics


def test_an_error_before_the_first_source_line_keeps_its_form() -> None:
    told = "ptxas application ptx input, line 1; error   : Parsing error"
    assert at_source_lines(told, ".version 8.0\n.loc 1 3 1\n") == told
