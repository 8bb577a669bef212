"""The counters agree with those that Nsight Compute read on an H200; what disagrees is named with its reason."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices import metrics
from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice

FOLDER = Path(__file__).parents[1] / "h200"
ROWS = runpy.run_path(str(FOLDER / "launches.py"))["launches"]("small")
MEASURED = json.loads((FOLDER / "measured.json").read_text())

GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
MEMORY = [GLOBAL.format(what, op) for what in ("requests", "sectors") for op in ("ld", "st")]
MEMORY += [SHARED.format(op) for op in ("ld", "st")]
KNOWN_MISSES = {
    ("scan_naive", GLOBAL.format("sectors", "ld")): "lanes in different rounds of the unrolled loop meet again later",
    ("scan_blelloch", SHARED.format("ld")): "the compiler joins neighbouring 4-byte accesses to 8-byte ones",
    ("scan_blelloch", SHARED.format("st")): "the compiler joins neighbouring 4-byte accesses to 8-byte ones",
}


@pytest.fixture(scope="module")
def profiles() -> dict[str, LaunchProfile]:
    """The launches of measured.json, counted on the simulated GPU."""
    device = SimulatedDevice()
    source = (FOLDER / "kernels.cu").read_text()
    found = {}
    module = device.compile(source, "kernels.cu")
    for name, kernel, grid, block, args, constants in ROWS:
        for symbol, values in constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        found[name] = module.launch(kernel, grid, block, arrays, options=LaunchOptions(count=True))
        device.reset()
    return found


def pairs(profiles: dict[str, LaunchProfile], names: list[str]) -> Iterator[tuple[str, str, float, float]]:
    for row, measured in MEASURED.items():
        for name in names:
            yield row, name, profiles[row].counters[name], measured["counters"][name]


def test_memory_counters_are_the_hardwares(profiles: dict[str, LaunchProfile]) -> None:
    compared = list(pairs(profiles, MEMORY))
    missed = [(row, name, ours, truth) for row, name, ours, truth in compared if ours != truth]
    print(tabulate(missed, ["launch", "counter", "simulated", "H200"], tablefmt="simple", floatfmt=".0f"))
    assert len(compared) == 120
    assert len(missed) <= 3
    for row, name, ours, truth in missed:
        assert (row, name) in KNOWN_MISSES
        assert ours == pytest.approx(truth, rel=0.09)


def test_every_figure_is_in_the_table_of_metrics(profiles: dict[str, LaunchProfile]) -> None:
    names = {name for profile in profiles.values() for name in profile.counters}
    names |= {name for profile in profiles.values() for line in profile.lines for name in line.counters}
    assert names <= set(metrics.LEVELS)
    assert len(metrics.LEVELS) == len(metrics.METRICS)


def test_lines_add_up_to_the_launch(profiles: dict[str, LaunchProfile]) -> None:
    once_a_launch = {"gpulab__touched_sectors.sum", "gpulab__warps.sum"}
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
