"""Machine code is read as `nvdisasm` reads it, carried over to the PTX, and its counts follow from a flow of lanes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.compiler.elf import Elf
from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.sass import instructions
from pytest_gpulab.devices.simulated.sass.code import MachineCode, kernel_blocks, machine_code
from pytest_gpulab.devices.simulated.sass.flow import FlowModel
from pytest_gpulab.devices.simulated.sass.linear import minimise

KERNELS = Path(__file__).parents[1] / "h200" / "counter_kernels.cu"
ARCHITECTURES = ("sm_75", "sm_86", "sm_90")


def disassembler() -> str | None:
    """NVIDIA's disassembler, from a toolkit or from its wheel (`nvidia-cuda-nvdisasm`)."""
    wheel = importlib.util.find_spec("nvidia")
    places = [Path(root) for root in (wheel.submodule_search_locations or [])] if wheel else []
    found = [path for place in places for path in place.glob("*/bin/nvdisasm")]
    return str(found[0]) if found else shutil.which("nvdisasm")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def binary(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    """An architecture, and the machine code of kernels of many shapes for it."""
    return request.param, compile_machine_code(KERNELS.read_text(), KERNELS.name, request.param).cubin


def test_guards_and_jumps_are_those_that_nvdisasm_shows(binary: tuple[str, bytes], tmp_path: Path) -> None:
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed (python -m pip install nvidia-cuda-nvdisasm)")
    architecture, cubin = binary
    (tmp_path / "kernels.cubin").write_bytes(cubin)
    listing = subprocess.run([tool, str(tmp_path / "kernels.cubin")], capture_output=True, text=True, check=True).stdout
    compared = 0
    for section in listing.split("\n\t.section\t.text.")[1:]:
        labels, shown = read_listing(section)
        code = instructions.decode(Elf(cubin).contents(".text." + section.split(",")[0]))
        for instruction in code:
            guard, name, operands = shown[instruction.address]
            assert instruction.guarded == bool(guard)
            assert instruction.conditional >= bool(guard)
            label = re.search(r"`\((\S+)\)", operands) if name in ("BRA", "CALL") else None
            if label:
                assert instruction.target(int(architecture[3:])) == labels[label[1]]
                compared += 1
    assert compared > 400


def read_listing(section: str) -> tuple[dict[str, int], dict[int, tuple[str, str, str]]]:
    """Return a listing's labels, and guard, name and operands of each instruction by address."""
    labels: dict[str, int] = {}
    shown = {}
    waiting: list[str] = []
    for line in section.splitlines():
        if match := re.match(r"(\S+):$", line):
            waiting.append(match[1])
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\d+ )?\s*([A-Z][A-Z0-9_]*)([^;]*);", line):
            labels |= dict.fromkeys(waiting, int(match[1], 16))
            waiting = []
            shown[int(match[1], 16)] = (match[2] or "", match[3], match[4])
    return labels, shown


def test_every_instruction_knows_its_ptx_statement(binary: tuple[str, bytes]) -> None:
    """Operations with one counterpart in PTX show the statement of an instruction."""
    architecture, cubin = binary
    code = MachineCode(cubin, architecture)
    named = {s.number: s.op for f in code.ptx.functions.values() for s in f.body if hasattr(s, "op")}
    expected = {
        instructions.STG: "st",
        instructions.STS: "st",
        instructions.LDS: "ld",
        instructions.LDG: "ld",
        instructions.BAR: "bar",
        instructions.SHFL: "shfl",
    }
    seen = set()
    for kernel in code.ptx.functions:
        for block in code.blocks(kernel):
            for instruction in block.instructions:
                if instruction.operation in expected and instruction.number >= 0:  # not the compiler's own
                    assert named[instruction.number][0] in (expected[instruction.operation], "atom")
                    seen.add(instruction.operation)
    assert seen == set(expected)


def test_unreadable_bytes_are_no_machine_code() -> None:
    source = "__global__ void set(int *x) { x[threadIdx.x] = 1; }"
    cubin = compile_machine_code(source, "set.cu", "sm_90").cubin
    module = parse(nvrtc.compile_ptx(source, "set.cu", "compute_90")[0])
    other = parse(nvrtc.compile_ptx(source.replace("= 1", "+= 1"), "set.cu", "compute_90")[0])
    (kernel,) = module.functions
    assert kernel_blocks(machine_code(cubin, "sm_90", module), kernel)
    assert not kernel_blocks(machine_code(cubin, "sm_90", module), "another")
    assert machine_code(cubin, "sm_90", other) is None
    for cut in (cubin[: len(cubin) // 2], b"", b"\x7fELF" + bytes(100)):
        assert machine_code(cut, "sm_90", module) is None
    assert not kernel_blocks(None, kernel)


def test_a_linear_program_finds_the_least() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        rows, columns = 4, 9
        matrix, least = rng.normal(size=(rows, columns)), np.zeros(columns)
        basis = rng.choice(columns, rows, replace=False)
        least[basis] = rng.uniform(0.1, 1, rows)
        slack = rng.uniform(0.1, 1, columns)
        slack[basis] = 0
        cost = matrix.T @ rng.normal(size=rows) + slack  # by duality, `least` is the one solution
        np.testing.assert_allclose(minimise(cost, matrix, matrix @ least), least, atol=1e-4)


UNROLLED = """
__global__ void total(const float *x, float *out, int n)
{
    float sum = 0;
    for (int k = 0; k < n; k++) sum += x[k];
    out[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("n", [0, 3, 64, 1000])
def test_an_unrolled_loop_does_not_hide_how_often_it_ran(n: int) -> None:
    """Loads are issued once a trip whatever the unrolling; instructions grow with the trips, by a few each."""
    device = SimulatedDevice()
    x, out = device.array(np.ones(max(n, 1), np.float32)), device.empty(32, np.float32)
    module = device.compile(UNROLLED, "total.cu")
    options = LaunchOptions(count=True)
    profile = module.launch("total", (1,), (32,), (x, out, np.int32(n)), options=options)
    assert profile.instruction_source == "machine code"
    assert profile.counters["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"] == pytest.approx(32 * n, rel=1e-4)
    issued = profile.counters["smsp__inst_executed.sum"]
    assert 2 * n + 8 <= issued <= 5 * n + 60


CALLS = """
__device__ float root(float x) { for (int k = 0; k < 64; k++) x = x * 1.5f + sqrtf(x); return x; }
__device__ float product(float x) { return x * x; }
__device__ float (*const functions[])(float) = {root, product};
__device__ float nested(float x, int n) { return n ? 0.5f * sqrtf(nested(x, n - 1)) : x; }
__global__ void plain(float *x, int which) { x[threadIdx.x] = which ? product(x[threadIdx.x]) : root(x[threadIdx.x]); }
__global__ void pointer(float *x, int which) { x[threadIdx.x] = functions[which](x[threadIdx.x]); }
__global__ void recursion(float *x, int which) { x[threadIdx.x] = nested(x[threadIdx.x], 32 - which); }
"""


def test_called_functions_count_also_if_machine_code_does_not_show_how_often() -> None:
    """A call through a pointer leads to code of its own; with the kernel's code alone it would cost nothing."""
    device = SimulatedDevice()
    x, module = device.array(np.ones(32, np.float32)), device.compile(CALLS, "calls.cu")
    issued = {}
    for kernel in module.kernels:
        profile = module.launch(kernel, (1,), (32,), (x, np.int32(0)), options=LaunchOptions(count=True))
        issued[kernel] = profile.counters["smsp__inst_executed.sum"]
        assert profile.instruction_source == ("machine code" if kernel == "plain" else "rules")
    assert issued["pointer"] == pytest.approx(issued["plain"], rel=0.3)
    assert issued["recursion"] > 32 * 10


def test_lanes_flow_past_a_slow_path() -> None:
    """Evidence for the blocks around a division decides; its slow path, which nothing speaks for, gets no lanes."""
    source = "__global__ void divide(float *x, float y) { x[threadIdx.x] = x[threadIdx.x] / y; }"
    binary = compile_machine_code(source, "divide.cu", "sm_90")
    code = MachineCode(binary.cubin, "sm_90")
    (kernel,) = code.ptx.functions
    blocks = code.blocks(kernel)
    statements = [s.number for s in code.ptx.functions[kernel].body if hasattr(s, "op")]
    flow = FlowModel(blocks, dict.fromkeys(statements, 0)).solve(dict.fromkeys(statements, 96), 96)
    slow = [i for i, block in enumerate(blocks) if block.calls is not None]
    assert slow
    assert [flow.lanes[i] for i in slow] == [0.0] * len(slow)
    assert flow.lanes[0] == pytest.approx(96)


def test_the_steps_of_a_division_by_a_constant_are_no_copies_of_it() -> None:
    """Its machine code has five multiply-adds and no reciprocal; an H100 issues 3,853 instructions per warp here."""
    source = """__global__ void f(float *out, int n)
    {
        float x = threadIdx.x;
#pragma unroll 1
        for (int i = 0; i < n; ++i) x = x / 3.1f + 1.5f;
        out[threadIdx.x] = x;
    }"""
    device = SimulatedDevice()
    arguments = device.array(np.zeros(32, np.float32)), np.int32(256)
    profile = device.compile(source).launch("f", (1,), (32,), arguments, options=LaunchOptions(count=True))
    assert profile.counters["smsp__inst_executed.sum"] == pytest.approx(3853, rel=0.01)
