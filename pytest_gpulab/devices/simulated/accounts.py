"""Named figures of a launch and of each source line, made of its raw counts; `devices.metrics` says what they mean.

Everything is first charged to the source line of the instruction that did it; a launch's figures are the sums. What
warps moved is counted as it is; what they issued comes from the machine code where it can be read, else from `rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from pytest_gpulab.devices.metrics import METRICS, with_ratios
from pytest_gpulab.devices.protocol import InstructionSource, KernelResources, LineCounters, SourceLine
from pytest_gpulab.devices.simulated.execution.counters import Counters, Traffic
from pytest_gpulab.devices.simulated.machine import sass
from pytest_gpulab.devices.simulated.machine.executions import Executed, Executions, Floats, MachineKernel
from pytest_gpulab.devices.simulated.rules import by_rules, figures_of
from pytest_gpulab.devices.simulated.translation.sites import Site

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_FLOATS = {sass.FADD: "fadd", sass.FMUL: "fmul", sass.FFMA: "ffma"}
_BY_LINE = tuple(metric.name for metric in METRICS if metric.name.endswith(".sum"))
Figures = Mapping[str, float]
REMEMBERED = 64  # launches of a kernel
Entries = list[tuple[SourceLine | None, Figures]]


class Accounts:
    """A launch's figures by source line (None: a place that the compiler does not name).

    Args:
        counters: of the blocks that ran.
        kernel: its machine code, or None where that cannot be read.
        launched: threads of the blocks that ran.

    Attributes:
        source: what the figures of issued instructions are made from.
    """

    def __init__(self, counters: Counters, kernel: MachineKernel | None, launched: int) -> None:
        self._lines: dict[SourceLine | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        counters.finish()
        self._touched = counters.touched
        for where, figures in _memory(counters):
            self._charge(where, figures)
        machine = _by_machine_code(counters, kernel, launched)
        by: InstructionSource = "rules" if kernel is None else "rules for large code"
        self.source: InstructionSource = by if machine is None else "machine code"
        for where, figures in by_rules(counters) if machine is None else machine:
            self._charge(where, figures)

    def _charge(self, where: SourceLine | None, figures: Figures) -> None:
        line = self._lines[where]
        for name, value in figures.items():
            if value:
                line[name] += value

    def totals(self, scale: float) -> dict[str, float]:
        """Return the launch's figures; `scale` is blocks of the grid over blocks that ran."""
        sums: dict[str, float] = dict.fromkeys(_BY_LINE, 0.0)
        for line in self._lines.values():
            for name, value in line.items():
                sums[name] += value
        sums["gpulab__touched_sectors.sum"] = self._touched
        return with_ratios({name: value * scale for name, value in sums.items()})

    def lines(self, scale: float) -> tuple[LineCounters, ...]:
        """Return the same by source line, in the order of files and lines."""
        known = [(where, figures) for where, figures in self._lines.items() if where is not None and figures]
        known.sort(key=lambda entry: (entry[0].file, entry[0].line))
        return tuple(
            LineCounters(where, with_ratios({name: value * scale for name, value in figures.items()}))
            for where, figures in known
        )


def launch_figures(resources: KernelResources, occupancy: float) -> dict[str, float]:
    """Name what the compiler says of a kernel, and the theoretical occupancy (0 to 1)."""
    figures = {"sm__maximum_warps_per_active_cycle_pct": 100 * occupancy}
    if resources.registers is not None:
        figures["launch__registers_per_thread"] = resources.registers
    if resources.local_bytes is not None:
        figures["gpulab__local_bytes_per_thread"] = resources.local_bytes
    return figures


def _memory(counters: Counters) -> Iterator[tuple[SourceLine | None, Figures]]:
    """What was counted exactly: memory traffic, barriers, PTX instructions."""
    for (index, space), traffic in counters.traffic.items():
        site = counters.program.sites[index]
        yield site.where, _traffic_figures(site, space, traffic)
    for block, step in enumerate(counters.program.steps):
        for where, count in step.lines.items() if counters.lanes[block] else ():
            yield where, {"gpulab__ptx_thread_inst.sum": counters.lanes[block] * count}
        if step.barrier is not None:
            yield step.barrier.where, {"gpulab__barriers.sum": counters.warps[block]}


def _traffic_figures(site: Site, space: str, traffic: Traffic) -> Figures:
    if space == "const":
        return {
            "gpulab__constant_requests.sum": traffic.requests,
            "gpulab__constant_words.sum": traffic.units,
        }
    if space == "global":
        return {
            _REQUESTS.format(site.op): traffic.requests,
            _SECTORS.format(site.op): traffic.units,
            "gpulab__atomic_passes_global.sum": traffic.passes,
        }
    op = "atom" if site.op == "red" else site.op
    return {
        f"gpulab__shared_requests_op_{op}.sum": traffic.requests,
        _WAVEFRONTS.format(op): traffic.units,
        _CONFLICTS.format(op): traffic.units - traffic.ideal,
        "gpulab__atomic_passes_shared.sum": traffic.passes,
    }


def _by_machine_code(counters: Counters, kernel: MachineKernel | None, launched: int) -> Entries | None:
    """Figures of issued instructions from the machine code, by line; None where there is none or it is too large.

    Launches are often repeated, with other data or at another seed, so those of the last few are kept.
    """
    if kernel is None or kernel.is_too_large:
        return None
    ran, replays = (tuple(counters.lanes), tuple(counters.warps), tuple(counters.parted)), _replays(counters)
    key = (ran, tuple(replays.items()), launched)
    if key not in kernel.remembered:
        if len(kernel.remembered) >= REMEMBERED:
            kernel.remembered.clear()
        kernel.remembered[key] = _issued_by_line(counters, kernel, launched, replays)
    known: Entries = kernel.remembered[key]
    return known


def _issued_by_line(counters: Counters, kernel: MachineKernel, launched: int, replays: Mapping[int, float]) -> Entries:
    executed, places = _executed(counters)
    found = kernel.executions(executed, launched)
    lines = list(dict.fromkeys(places[number] for number in kernel.numbers))
    row = {where: i for i, where in enumerate(lines)}
    rows = np.array([row[places[number]] for number in kernel.numbers])
    table = {
        name: np.bincount(rows, weights=values, minlength=len(lines)).tolist()
        for name, values in _issued(kernel, found, replays).items()
    }
    return [(where, {name: values[i] for name, values in table.items() if values[i]}) for i, where in enumerate(lines)]


def _executed(counters: Counters) -> tuple[Executed, dict[int, SourceLine | None]]:
    """Return how often each statement was executed, and its source line."""
    lanes: dict[int, int] = defaultdict(int)
    warps: dict[int, int] = defaultdict(int)
    parted: dict[int, int] = defaultdict(int)
    places: dict[int, SourceLine | None] = {}
    for block, step in enumerate(counters.program.steps):
        for statement in step.statements:
            number = statement.number
            lanes[number] += counters.lanes[block]
            warps[number] += counters.warps[block]
            places[number] = statement.where
        if counters.parted[block]:
            parted[step.statements[-1].number] += counters.parted[block]
    return Executed(lanes, warps, parted), places


def _replays(counters: Counters) -> dict[int, float]:
    """Addresses that a warp's load of a constant asks for, on average, by statement."""
    return {
        counters.program.sites[index].number: traffic.addresses / traffic.requests
        for (index, space), traffic in counters.traffic.items()
        if space == "const" and traffic.requests
    }


def _issued(kernel: MachineKernel, found: Executions, replays: Mapping[int, float]) -> dict[str, Floats]:
    """Figures of each instruction, by name."""
    operations, branches = kernel.operations, kernel.branches
    constant = operations == sass.LDC
    asked = np.ones(len(operations))
    if replays:
        asked = np.array([replays.get(instruction.number, 1.0) for instruction in kernel.code])
    figures = {
        **figures_of(found.warps, found.threads, found.working),
        "smsp__sass_branch_targets.sum": found.warps * branches,
        "smsp__sass_branch_targets_threads_divergent.sum": found.parted,
        "smsp__sass_branch_targets_threads_uniform.sum": found.warps * branches - found.parted,
        "smsp__inst_executed_op_ldc.sum": found.warps * constant,
        "idc__requests.sum": found.active * asked * constant,
        "smsp__inst_executed_op_shared_ld.sum": found.warps * (operations == sass.LDS),
        "smsp__inst_executed_op_shared_st.sum": found.warps * (operations == sass.STS),
    }
    for operation, name in _FLOATS.items():
        figures[f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"] = found.working * (operations == operation)
    return figures
