"""The counters agree with those that Nsight Compute read on an H200; what disagrees is named with its reason."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.hardware import metrics
from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, LaunchProfile, LineCounters, Module
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.sass import code as sass_code
from pytest_gpulab.devices.simulated.sass import flow
from pytest_gpulab.exercise import DEFAULT_VARIANT
from pytest_gpulab.grading.annotate import listing_of
from pytest_gpulab.grading.catalogue import Catalogue

FOLDER = Path(__file__).parents[1] / "h200"
ROWS = runpy.run_path(str(FOLDER / "launches.py"))["launches"]("small")
MEASURED = json.loads((FOLDER / "measured.json").read_text())

GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
OPS = ("ld", "st", "atom")
MEMORY = [GLOBAL.format(what, op) for what in ("requests", "sectors") for op in ("ld", "st")]
MEMORY += [SHARED.format(op) for op in ("ld", "st")]
KNOWN_MISSES = {
    ("scan_naive", GLOBAL.format("sectors", "ld")): "lanes in different rounds of the unrolled loop meet again later",
}
ISSUED, WORKING = "smsp__inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum"
CONSTANTS = "idc__requests.sum"
ATOMICS = [GLOBAL.format(what, op) for what in ("requests", "sectors") for op in ("atom", "red")]
ATOMICS += [SHARED.format("atom"), *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in OPS)]
BY_COMPARE_AND_SWAP = "the assembler adds floats in shared memory by compare-and-swap, as often as others get between"
UNROLLED = "lanes with different trip counts run different copies of the loop that the assembler has unrolled"
FURTHER_MISSES = {
    ("histogram_global", GLOBAL.format("sectors", "red")): "not known; 1 %",
    ("shared_atomic_kinds_32", SHARED.format("ld")): BY_COMPARE_AND_SWAP,
    ("shared_atomic_kinds_32", SHARED.format("atom")): BY_COMPARE_AND_SWAP,
    ("shared_atomic_kinds_4", SHARED.format("ld")): BY_COMPARE_AND_SWAP,
    ("shared_atomic_kinds_4", SHARED.format("atom")): BY_COMPARE_AND_SWAP,
    ("rows_csr", GLOBAL.format("requests", "ld")): UNROLLED,
    ("rows_csr", GLOBAL.format("sectors", "ld")): UNROLLED,
}

Counted = dict[str, tuple[LaunchProfile, dict[str, float]]]
COUNT = LaunchOptions(count=True)


def counted(
    rows: Iterable[Any], source: str, truth: dict[str, dict[str, float]], options: LaunchOptions = COUNT
) -> Counted:
    """Launch each row on the simulated GPU; return its profile beside the hardware's counters."""
    device, found = SimulatedDevice(), {}
    module = device.compile((FOLDER / source).read_text(), source)
    for name, kernel, grid, block, args, shared_bytes, constants in rows:
        for symbol, values in constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        found[name] = module.launch(kernel, grid, block, arrays, shared_bytes, options), truth[name]
        device.reset()
    return found


def calibration_launches() -> Counted:
    """The launches of measured.json."""
    rows = [(name, kernel, grid, block, args, 0, constants) for name, kernel, grid, block, args, constants in ROWS]
    return counted(rows, "kernels.cu", {name: row["counters"] for name, row in MEASURED.items()})


def further_launches(options: LaunchOptions = COUNT) -> Counted:
    """The launches of counters.json: many shapes; rules for atomics and wide accesses were made with them."""
    rows = [astuple(row) for row in runpy.run_path(str(FOLDER / "counter_launches.py"))["launches"]()]
    return counted(rows, "counter_kernels.cu", json.loads((FOLDER / "counters.json").read_text()), options)


@pytest.fixture(scope="module")
def calibration() -> Counted:
    return calibration_launches()


@pytest.fixture(scope="module")
def further() -> Counted:
    return further_launches()


@pytest.fixture(scope="module")
def without_machine_code() -> dict[str, Counted]:
    """Both, where the compiler's machine code cannot be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sass_code, "kernel_blocks", lambda *_: [])
        return {"calibration": calibration_launches(), "further": further_launches()}


@pytest.fixture(scope="module")
def profiles(calibration: Counted) -> dict[str, LaunchProfile]:
    return {name: profile for name, (profile, _) in calibration.items()}


def pairs(profiles: dict[str, LaunchProfile], names: list[str]) -> Iterator[tuple[str, str, float, float]]:
    for row, measured in MEASURED.items():
        for name in names:
            yield row, name, profiles[row].counters[name], measured["counters"][name]


@pytest.mark.unmeasured
def test_memory_counters_are_the_hardwares(profiles: dict[str, LaunchProfile]) -> None:
    compared = list(pairs(profiles, MEMORY))
    missed = [(row, name, ours, truth) for row, name, ours, truth in compared if ours != truth]
    print(tabulate(missed, ["launch", "counter", "simulated", "H200"], tablefmt="simple", floatfmt=".0f"))
    assert len(compared) == 120
    assert len(missed) <= 1
    for row, name, ours, truth in missed:
        assert (row, name) in KNOWN_MISSES
        assert ours == pytest.approx(truth, rel=0.08)


def compare_issued(launches: Counted) -> tuple[int, int, int]:
    """Print the comparison; return how many launches are within 25 % (issued), 15 % (lanes), 25 % (constants)."""
    table, within = [], np.zeros(3, int)
    for name, (profile, truth) in launches.items():
        ours = profile.counters
        issued = ours[ISSUED] / truth[ISSUED]
        lanes = (ours[WORKING] / ours[ISSUED]) / (truth[WORKING] / truth[ISSUED])
        constants = ours[CONSTANTS] / truth[CONSTANTS]
        within += [abs(issued - 1) <= 0.25, abs(lanes - 1) <= 0.15, abs(constants - 1) <= 0.25]
        table.append((name, ours[ISSUED], truth[ISSUED], issued, ours[WORKING] / ours[ISSUED], lanes, constants,
                      profile.instruction_source))  # fmt: skip
    head = ["launch", "issued", "H200", "ratio", "lanes", "ratio", "constants", "made from"]
    print(tabulate(table, head, floatfmt=("", ".0f", ".0f", ".3f", ".2f", ".3f", ".3f")))
    return int(within[0]), int(within[1]), int(within[2])


def test_issued_instructions_are_close_to_the_hardwares(calibration: Counted) -> None:
    issued, lanes, constants = compare_issued(calibration)
    assert {profile.instruction_source for profile, _ in calibration.values()} == {"machine code"}
    assert issued == lanes == constants == len(calibration) == 20


@pytest.mark.unmeasured
def test_issued_instructions_are_close_on_further_kernels_too(further: Counted) -> None:
    issued, lanes, constants = compare_issued(further)
    assert len(further) == 44
    assert issued >= 40
    assert lanes >= 40
    assert constants >= 40


@pytest.mark.unmeasured
def test_issued_instructions_by_rules_are_usable(without_machine_code: dict[str, Counted]) -> None:
    for launches in without_machine_code.values():
        assert {profile.instruction_source for profile, _ in launches.values()} == {"rules"}
        issued, lanes, _ = compare_issued(launches)
        assert issued >= 0.8 * len(launches)
        assert lanes >= 0.8 * len(launches)


def test_memory_counters_hold_on_further_kernels_too(further: Counted) -> None:
    compared = [(row, name, profile.counters[name], truth[name]) for row, (profile, truth) in further.items()
                for name in (*MEMORY, *ATOMICS)]  # fmt: skip
    missed = [entry for entry in compared if entry[2] != entry[3]]
    print(tabulate(missed, ["launch", "counter", "simulated", "H200"], floatfmt=".0f"))
    assert {(row, name) for row, name, _, _ in missed} == set(FURTHER_MISSES)


SHORT_AND_LONG = """
__global__ void branches(float *x, int n)
{
    int i = threadIdx.x;
    float y = x[i];
    if (i < n) y = x[i + 32] + y;
    x[i] = y;
    if (i < n) {
        for (int k = 0; k < n; k++) y = y * 1.5f + x[k];
        x[i] = y;
    }
}
"""


def test_counters_do_not_depend_on_earlier_launches() -> None:
    device = SimulatedDevice()
    x = device.array(np.ones(64, np.float32))

    def lines(module: Module, n: int, threads: int) -> tuple[LineCounters, ...]:
        return module.launch("branches", (1,), (threads,), (x, np.int32(n)), options=COUNT).lines

    used = device.compile(SHORT_AND_LONG, "branches.cu")
    for n, threads in ((5, 32), (6, 32), (5, 64), (5, 32), (0, 32)):
        assert lines(used, n, threads) == lines(device.compile(SHORT_AND_LONG, "branches.cu"), n, threads)


def test_by_rules_a_short_branch_is_a_guard_and_a_long_one_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass_code, "kernel_blocks", lambda *_: [])
    device = SimulatedDevice()
    x = device.array(np.ones(64, np.float32))
    module = device.compile(SHORT_AND_LONG, "branches.cu")
    profile = module.launch("branches", (1,), (32,), (x, np.int32(5)), options=LaunchOptions(count=True))
    line = {line.where.line: line.counters for line in profile.lines}
    lanes = "smsp__thread_inst_executed_per_inst_executed.ratio"
    assert line[6][lanes] == 32
    assert 5 <= line[6][WORKING] / line[6][ISSUED] < 32
    assert line[9][lanes] == 5
    assert "smsp__sass_branch_targets.sum" not in line[6]
    assert line[8]["smsp__sass_branch_targets_threads_divergent.sum"] == 1


def test_a_profile_holds_what_the_compiler_says(profiles: dict[str, LaunchProfile]) -> None:
    profile = profiles["branch_two_way_divergent"]
    assert profile.counters["launch__registers_per_thread"] == profile.resources.registers
    assert profile.counters["gpulab__local_bytes_per_thread"] == profile.resources.local_bytes == 32
    assert profile.counters["sm__maximum_warps_per_active_cycle_pct"] == 100


def test_a_listing_says_where_instructions_are_counted_by_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    loaded = Catalogue(root / "exercises").load("reduction")
    path = root / "solutions" / "reduction" / "06_shared_modulo.cu"

    def note() -> str:
        return listing_of(loaded, path, SimulatedDevice(), 1, 4096, DEFAULT_VARIANT).note

    assert note() == ""
    counted_by_rules = r"Instructions are counted by rules, without machine code: that of \w+ "
    with monkeypatch.context() as patch:
        patch.setattr(flow, "LARGEST", 1)
        assert re.fullmatch(counted_by_rules + r"is too large to follow\.", note())
    monkeypatch.setattr(sass_code, "kernel_blocks", lambda *_: [])
    assert re.fullmatch(counted_by_rules + r"cannot be read or followed\.", note())


def test_every_figure_is_in_the_table_of_metrics(profiles: dict[str, LaunchProfile]) -> None:
    names = {name for profile in profiles.values() for name in profile.counters}
    names |= {name for profile in profiles.values() for line in profile.lines for name in line.counters}
    listed = [metric.name for metric in metrics.METRICS]
    assert names <= set(listed)
    assert len(set(listed)) == len(listed)


def test_the_counters_are_the_same_with_an_estimate(further: Counted) -> None:
    for row, (estimated, _) in further_launches(LaunchOptions(estimate=True)).items():
        profile, _ = further[row]
        assert profile.counters == estimated.counters, row
        assert (profile.estimated_ms, profile.bottleneck) == (None, "")
        assert estimated.estimated_ms is not None and estimated.bottleneck
        shares = [line.counters["gpulab__time_share.pct"] for line in estimated.lines]
        assert not shares or sum(shares) == pytest.approx(100), row


def test_lines_add_up_to_the_launch(profiles: dict[str, LaunchProfile]) -> None:
    once_a_launch = {"gpulab__touched_sectors.sum", "gpulab__warps.sum", "gpulab__warps_at_barriers.sum"}
    for profile in profiles.values():
        for name, total in profile.counters.items():
            if name.endswith(".sum") and name not in once_a_launch:
                assert sum(line.counters.get(name, 0) for line in profile.lines) == pytest.approx(total), name


def counters_at(profile: LaunchProfile, text: str) -> Any:
    """The counters of the one line of kernels.cu that holds a text, after the kernel's own first line."""
    lines = (FOLDER / "kernels.cu").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if f"void {profile.kernel}(" in line)
    number = next(i for i, line in enumerate(lines) if i > start and text in line) + 1
    return next(line.counters for line in profile.lines if line.where.line == number)


def test_bank_conflicts_stand_at_the_line_that_has_them(profiles: dict[str, LaunchProfile]) -> None:
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    profile = profiles["reduce_interleaved_strided"]
    assert profile.counters[conflicts] == MEASURED["reduce_interleaved_strided"]["counters"][conflicts]
    assert counters_at(profile, "s[x] += s[x + k]")[conflicts] == profile.counters[conflicts]
    assert counters_at(profile, "s[t] = i < n").get(conflicts, 0) == 0


def test_an_inlined_function_counts_at_its_own_lines(profiles: dict[str, LaunchProfile]) -> None:
    profile = profiles["branch_two_way_by_warp"]
    lines = (FOLDER / "kernels.cu").read_text().splitlines()
    body = next(i for i, line in enumerate(lines) if "float path_b(" in line) + 1
    figures = next(line.counters for line in profile.lines if line.where.line == body)
    assert figures["smsp__inst_executed.sum"] > 0.4 * profile.counters["smsp__inst_executed.sum"]


def test_addresses_all_over_the_place_are_a_fault_while_counting_too(device: SimulatedDevice) -> None:
    source = """
    __global__ void f(int *out) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        out[i] = out[(i % 7 - 3) * 0x0234567890ABCDE0ll];
    }"""
    out = device.empty(128 * 256, np.int32)
    with pytest.raises(KernelFault, match="invalid __global__ read of size 4 bytes"):
        device.compile(source).launch("f", (128,), (256,), (out,), options=COUNT)
    out.free()


IDLE = """
__global__ void f(int *x) {
    __syncthreads();
    if (threadIdx.x >= 64) return;
    for (int k = 0; k < 9; k++) asm volatile("bar.sync 1, 64;");
}"""
ARRIVALS = """
__global__ void f(int *x) {
    __shared__ unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x >= 64) return;
    for (int k = 0; k < 9; k++) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at) : "memory");
}"""
SWITCH = """
__global__ void f(int *x) {
    int i = threadIdx.x, a = x[i];
    for (int k = 0; k < 3; k++)
        switch (x[i + 1] - 1 + i % 2) {
            case 0: a = a * a + 7; break;
            case 1: a = a / (i + 1); break;
            case 2: a = a % 1000; x[i + 256] = a; break;
            case 3: a = __clz(a) * 3;
        }
    x[i] = a;
}"""
ROOTS = """
__global__ void f(float *x) {
    float a = x[threadIdx.x], b = x[threadIdx.x + 1];
#pragma unroll
    for (int k = 0; k < 3; k++) a = sqrtf(a) / (a + b);
    x[threadIdx.x] = a;
}"""
SHIFTS = """
__global__ void f(unsigned *x) {
    unsigned a = x[threadIdx.x];
#pragma unroll
    for (int k = 0; k < 16; k++) a = a >> 5 ^ a << 3;
    x[threadIdx.x] = a;
}"""
PRODUCT = """
__global__ void f(int *x) {
    double a = x[threadIdx.x], d;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, _}, {%1}, {%1}, {%1, %1};" : "=d"(d) : "d"(a));
    x[threadIdx.x] = d;
}"""


@pytest.mark.parametrize(
    ("source", "counter", "value"),
    [
        (IDLE, "gpulab__barriers.sum", 2 * 10 + 6),
        (IDLE, "gpulab__warps_at_barriers.sum", 26**2 / (2 * 10**2 + 6)),
        (ARRIVALS, "gpulab__warps_at_barriers.sum", 26**2 / (2 * 10**2 + 6)),
        ("__global__ void f(int *x) { __syncthreads(); }", "gpulab__warps_at_barriers.sum", 8),
        ("__global__ void f(int *x) {}", "gpulab__warps_at_barriers.sum", 0),
        (PRODUCT, "gpulab__data_additions.sum", 8 * 8 * 4 * 8),
        (SWITCH, "gpulab__table_jumps.sum", 3 * 2 * 8),
        ("__global__ void f(int *x) {}", "smsp__inst_executed_pipe_cbu.sum", 8),
        (ROOTS, "smsp__inst_executed_pipe_cbu.sum", 8 * (3 * (2 + 2) + 1)),
        (ROOTS, "smsp__inst_executed_pipe_xu.sum", 8 * 3 * (1 + 2)),
        (SHIFTS, "smsp__inst_executed_pipe_alu.sum", 8 * 2 * 16),
        ("__global__ void f(int *x) { x[threadIdx.x] *= x[threadIdx.x + 1]; }", "gpulab__data_additions.sum", 256),
        ("__global__ void f(int *x) { x[threadIdx.x] *= threadIdx.x; }", "gpulab__data_additions.sum", 0),
    ],
)
def test_barriers_of_few_warps_and_additions_of_other_kinds_are_counted(
    device: SimulatedDevice, source: str, counter: str, value: float
) -> None:
    x = device.array(np.ones(512, np.int32))
    profile = device.compile(source).launch("f", (1,), (256,), (x,), options=LaunchOptions(count=True))
    assert profile.counters[counter] == pytest.approx(value)
