"""Launches that end early or would never end: endless loops, deadlocks, trap, assert; and what they printed."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, CompileError, KernelFault, Lane

ENDLESS = {
    "empty loop": "while (true); // HERE",
    "one thread of many": "if (threadIdx.x == 3)\n while (true); // HERE\n x[5] = 1;",
    "flag that nobody sets": "volatile int *flag = x;\n while (flag[0] == 0); // HERE",
    "flag read once": "while (x[0] == 0); // HERE\n x[1] = 4;",
    "lock that nobody frees": "while (atomicCAS(x + 1, 0, 1) != 0); // HERE",
    "counter that never arrives": "for (unsigned k = 0; k != 3; k = (k + 2) % 64)\n x[k] = k; // HERE",
    "in a function": "spin(x);",
    "sleeping": "while (atomicAdd(x, 0) == 0)\n __nanosleep(100); // HERE",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_loop_is_stopped_and_its_line_named(run: Run, body: str) -> None:
    function = "" if "HERE" in body else " // HERE"
    source = (
        "__device__ __noinline__ void spin(volatile int *x) {\n"
        f" while (x[0] == 0);{function}\n}}\n__global__ void f(int *x) {{\n {body}\n}}\n"
    )
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), block=(64,))
    assert caught.value.code == "endless-loop"
    assert caught.value.where is not None
    line = marked(source).line
    assert line - ("\n" in body) <= caught.value.where.line <= line
    assert caught.value.where.file == "kernel.cu"


def test_long_loop_is_not_endless(run: Run) -> None:
    x = np.zeros(32, np.uint32)
    source = """
    __global__ void f(unsigned *x) {
        unsigned r = threadIdx.x;
        for (int k = 0; k < 20000; ++k) r = r * 3 + (r >> 7) + 1;
        x[threadIdx.x] = r;
    }"""
    run(source, x)
    assert x.all()


DEADLOCKS = {
    "barrier that half the threads wait for elsewhere": (
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); // HERE\n else asm volatile("bar.sync 2, 64;");',
        "deadlock: 32 threads wait at kernel.cu:2 (barrier 1), 32 threads wait at kernel.cu:3 (barrier 2); "
        "no other thread arrives",
    ),
    "barrier for more threads than come": (
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); // HERE',
        "deadlock: 32 threads wait at kernel.cu:2 (barrier 1), 32 have ended; no other thread arrives",
    ),
}


@pytest.mark.parametrize(("body", "what"), DEADLOCKS.values(), ids=DEADLOCKS.keys())
def test_deadlock_lists_the_waiting_threads_by_line(run: Run, body: str, what: str) -> None:
    source = f"__global__ void f(int *x) {{\n {body}\n x[threadIdx.x] = 1;\n}}\n"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), block=(64,))
    assert (caught.value.code, caught.value.what) == ("deadlock", what)
    assert caught.value.where is not None and caught.value.where.line in (marked(source).line, marked(source).line + 1)


def test_trap_names_line_and_thread(run: Run) -> None:
    source = "__global__ void f(int *x) {\n if (x[threadIdx.x] == 9)\n  __trap(); // HERE\n}\n"
    values = np.arange(64, dtype=np.int32)
    with pytest.raises(KernelFault) as caught:
        run(source, values, block=(64,))
    assert caught.value.code == "trap"
    assert caught.value.where == marked(source)
    assert caught.value.lane == Lane((0, 0, 0), (9, 0, 0))


def test_breakpoint_without_a_debugger_stops_the_kernel(run: Run) -> None:
    source = "__global__ void f(int *x) {\n if (x[threadIdx.x] == 9)\n  __brkpt(); // HERE\n}\n"
    with pytest.raises(KernelFault, match=r": the kernel reached a breakpoint, first by block 0 thread 9$") as caught:
        run(source, np.arange(64, dtype=np.int32), block=(64,))
    assert (caught.value.code, caught.value.where) == ("breakpoint", marked(source))
    assert caught.value.lane == Lane((0, 0, 0), (9, 0, 0))


def test_assert_gives_the_condition_its_line_and_the_thread(run: Run) -> None:
    source = (
        '#include <cassert>\n__global__ void f(int *x) {\n\n assert(x[threadIdx.x] < 40 && "too large"); // HERE\n}\n'
    )
    with pytest.raises(KernelFault) as caught:
        run(source, np.arange(64, dtype=np.int32), block=(64,))
    assert caught.value.code == "assert"
    assert 'x[threadIdx.x] < 40 && "too large"' in caught.value.what
    assert caught.value.where == marked(source)
    assert caught.value.lane == Lane((0, 0, 0), (40, 0, 0))


def test_assert_that_holds_costs_nothing(run: Run) -> None:
    profile = run("#include <cassert>\n__global__ void f(int *x) { assert(x[0] == 0); }", np.zeros(1, np.int32))
    assert profile.output == ""


def test_ndebug_removes_assert(run: Run) -> None:
    run("#define NDEBUG\n#include <cassert>\n__global__ void f(int *x) { assert(x[0] == 1); }", np.zeros(1, np.int32))


def test_printf_of_several_threads_keeps_each_threads_order(run: Run) -> None:
    source = (
        '#include <cstdio>\n__global__ void f() { printf("%d first\\n", threadIdx.x);'
        ' if (threadIdx.x & 1) printf("%d odd\\n", threadIdx.x); printf("%d last\\n", threadIdx.x); }'
    )
    lines = run(source, block=(40,)).output.splitlines()
    for thread in range(40):
        own = [line.split()[1] for line in lines if line.startswith(f"{thread} ")]
        assert own == ["first", "odd", "last"] if thread & 1 else own == ["first", "last"]
    assert [line for line in lines if line.endswith("first")][:32] == [f"{thread} first" for thread in range(32)]


def test_printf_without_include_and_with_many_arguments(run: Run) -> None:
    source = '__global__ void f(float x) { printf("%d %s %f %lld %c %u\\n", 1, "two", x, 4ll, \'5\', 6u); }'
    assert run(source, np.float32(3), block=(1,)).output == "1 two 3.000000 4 5 6\n"


def test_printf_flood_is_capped_and_says_so(run: Run) -> None:
    source = '#include <cstdio>\n__global__ void f() { for (int k = 0; k < 400; ++k) printf("%0100d\\n", k); }'
    output = run(source, grid=(8,), block=(128,)).output
    assert len(output) < 2_000_000
    assert "more" in output.splitlines()[-1] or "cut" in output.splitlines()[-1]


UNKNOWN = {
    "red.async": (
        'asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%0], 1, [%0];" '
        ':: "r"(0)); // HERE'
    ),
    "cp.async.bulk": 'asm volatile("cp.async.bulk.prefetch.L2.global [%0], 16;" :: "l"(x)); // HERE',
}


@pytest.mark.parametrize(("opcode", "statement"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_unknown_instruction_is_refused_with_opcode_and_line(run: Run, opcode: str, statement: str) -> None:
    source = (
        "__global__ void f(double *x) {\n double d = x[0], e = x[1]; float a = 1, b = 2;\n"
        f" {statement}\n x[0] = d + e + a + b;\n}}\n"
    )
    with pytest.raises(CannotSimulate, match=opcode.replace(".", r"\.")) as caught:
        run(source, np.zeros(64), block=(32,))
    assert caught.value.where == marked(source)
    assert str(caught.value).endswith("at kernel.cu:3")


@pytest.mark.parametrize("statement", ["this is no instruction", "wgmma.fence.sync.aligned", "bra NOWHERE"])
def test_instructions_of_newer_gpus_do_not_compile(run: Run, statement: str) -> None:
    """Or a student could have any kernel left ungraded."""
    source = f'__global__ void f(int *x) {{ x[0] = 1; asm volatile("{statement};"); }}'
    with pytest.raises(CompileError, match="ptxas"):
        run(source, np.zeros(1, np.int32), block=(1,))
