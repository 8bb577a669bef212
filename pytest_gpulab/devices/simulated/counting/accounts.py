"""Named figures of a launch and of each source line, from its raw counts; `devices.hardware.metrics` defines them.

Every count is attributed to the source line of its instruction; a launch's figures are the sums. Memory traffic is
counted exactly. Issued instructions come from the machine code if it can be read, else from `rules`.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import numpy as np

from pytest_gpulab.devices.hardware.metrics import METRICS, with_ratios
from pytest_gpulab.devices.protocol import InstructionSource, KernelResources, LineCounters
from pytest_gpulab.devices.simulated.sass import instructions
from pytest_gpulab.devices.simulated.sass.executions import Executed, Executions, Floats, MachineKernel

from .counters import Counters
from .requests import Traffic
from .rules import by_rules, figures_of

_FLOATS = {
    instructions.FADD: "fadd", instructions.FMUL: "fmul", instructions.FFMA: "ffma",
    instructions.DADD: "dadd", instructions.DFMA: "dfma",
}  # fmt: skip
_PIPES = {
    "alu": sorted(instructions.INTEGER), "cbu": sorted(instructions.MEETING_UNIT), "xu": sorted(instructions.SPECIAL),
}  # fmt: skip
_BY_LINE = tuple(metric.name for metric in METRICS if metric.name.endswith(".sum"))
_COLUMN = {name: column for column, name in enumerate(_BY_LINE)}
_TOUCHED, _STATEMENTS = _COLUMN["gpulab__touched_sectors.sum"], _COLUMN["gpulab__ptx_thread_inst.sum"]
_BARRIERS, _WAITS = _COLUMN["gpulab__barriers.sum"], _COLUMN["gpulab__waits.sum"]
_ADDITIONS = _COLUMN["gpulab__data_additions.sum"]
MAX_CACHED = 64  # launches per kernel: they are often repeated with other data


class Accounts:
    """A launch's figures: a table with a row per entry of `Program.places` and a column per sum.

    `launched` is the number of threads of the blocks that ran; `source` says where issued instructions come from.
    """

    def __init__(self, counters: Counters, kernel: MachineKernel | None, launched: int) -> None:
        counters.finish()
        self._places, self._touched = counters.program.places, counters.touched
        machine = _by_machine_code(counters, kernel, launched)
        by: InstructionSource = "rules" if kernel is None else "rules for large code"
        self.source: InstructionSource = by if machine is None else "machine code"
        self._table = np.zeros((len(self._places.lines), len(_BY_LINE))) if machine is None else machine[0].copy()
        self._lanes = [n - further for n, further in zip(counters.lanes, counters.further_lanes, strict=True)]
        self._table[:, _STATEMENTS] = self._places.statements @ np.array(self._lanes)
        self._charge_memory(counters)
        if machine is None:
            for where, figures in by_rules(counters):
                for name, value in figures.items():
                    self._table[self._places.row[where], _COLUMN[name]] += value

    def _charge_memory(self, counters: Counters) -> None:
        """Add the exact counts: memory traffic, barriers and additions of data."""
        program = counters.program
        per_warp = (*program.barrier_rows, *program.wait_rows)
        rows = [row for _, row, *_ in (*per_warp, *program.addition_rows)]
        columns = [_BARRIERS] * len(program.barrier_rows) + [_WAITS] * len(program.wait_rows)
        columns += [_ADDITIONS] * len(program.addition_rows)
        values = [counters.warps[block] - counters.further_warps[block] for block, _ in per_warp]
        values += [self._lanes[block] * count for block, _, count in program.addition_rows]
        for (index, space), traffic in counters.traffic.items():
            touched = _traffic_columns(space, program.sites[index].op)
            columns += touched
            rows += [program.site_rows[index]] * len(touched)
            values += _traffic_values(space, traffic)
        cells = np.array(rows, np.intp) * len(_BY_LINE) + np.array(columns, np.intp)
        np.add.at(self._table.reshape(-1), cells, np.array(values, np.float64))

    def totals(self, scale: float) -> dict[str, float]:
        """Return the launch's figures; `scale` is the ratio of the grid's blocks to those that ran."""
        sums = self._table.sum(axis=0)
        sums[_TOUCHED] = self._touched
        return with_ratios(dict(zip(_BY_LINE, (sums * scale).tolist(), strict=True)))

    def lines(self, scale: float) -> tuple[LineCounters, ...]:
        """Return the figures per source line, in the order of files and lines."""
        found = []
        for where, row in zip(self._places.lines, (self._table * scale).tolist(), strict=True):
            figures = {name: value for name, value in zip(_BY_LINE, row, strict=True) if value}
            if where is not None and figures:
                found.append(LineCounters(where, with_ratios(figures)))
        return tuple(found)


def launch_figures(resources: KernelResources, occupancy: float) -> dict[str, float]:
    """Return the compiler's figures of a kernel and the theoretical occupancy (0 to 1), by name."""
    figures = {"sm__maximum_warps_per_active_cycle_pct": 100 * occupancy}
    if resources.registers is not None:
        figures["launch__registers_per_thread"] = resources.registers
    if resources.local_bytes is not None:
        figures["gpulab__local_bytes_per_thread"] = resources.local_bytes
    return figures


@cache
def _traffic_columns(space: str, op: str) -> list[int]:
    """Return the columns for an instruction's traffic in a memory space."""
    if space == "const":
        names = ["gpulab__constant_requests.sum", "gpulab__constant_words.sum"]
    elif space == "global":
        which = f"pipe_lsu_mem_global_op_{op}.sum"
        names = [f"l1tex__t_requests_{which}", f"l1tex__t_sectors_{which}", "gpulab__atomic_passes_global.sum"]
    else:
        which = f"op_{'atom' if op == 'red' else op}.sum"
        names = [
            f"gpulab__shared_requests_{which}", f"l1tex__data_pipe_lsu_wavefronts_mem_shared_{which}",
            f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_{which}", "gpulab__atomic_passes_shared.sum",
        ]  # fmt: skip
    return [_COLUMN[name] for name in names]


def _traffic_values(space: str, traffic: Traffic) -> list[int]:
    """Return the values for those columns."""
    if space == "const":
        return [traffic.requests, traffic.units]
    if space == "global":
        return [traffic.requests, traffic.units, traffic.passes]
    return [traffic.requests, traffic.units, traffic.units - traffic.ideal, traffic.passes]


def machine_executions(counters: Counters, kernel: MachineKernel | None, launched: int) -> Executions | None:
    """Return the executions of the machine code; None without readable machine code."""
    found = _by_machine_code(counters, kernel, launched)
    return None if found is None else found[1]


def _by_machine_code(
    counters: Counters, kernel: MachineKernel | None, launched: int
) -> tuple[Floats, Executions] | None:
    """Return the figures of issued instructions and the executions by machine code; None without it."""
    if kernel is None or kernel.is_too_large:
        return None
    ran, replays = (tuple(counters.lanes), tuple(counters.warps), tuple(counters.divergent)), _replays(counters)
    key = (ran, tuple(replays.items()), launched)
    if key not in kernel.cached:
        if len(kernel.cached) >= MAX_CACHED:
            kernel.cached.clear()
        kernel.cached[key] = _issued_by_line(counters, kernel, launched, replays)
    known: tuple[Floats, Executions] = kernel.cached[key]
    return known


def _issued_by_line(
    counters: Counters, kernel: MachineKernel, launched: int, replays: Mapping[int, float]
) -> tuple[Floats, Executions]:
    places = counters.program.places
    found = kernel.executions(_executed(counters), launched)
    rows = np.array([places.of_statement[number] for number in kernel.numbers])
    table = np.zeros((len(places.lines), len(_BY_LINE)))
    for name, values in _issued(kernel, found, replays).items():
        table[:, _COLUMN[name]] = np.bincount(rows, weights=values, minlength=len(table))
    return table, found


def _executed(counters: Counters) -> Executed:
    """Return the number of executions of each statement."""
    lanes: dict[int, int] = defaultdict(int)
    warps: dict[int, int] = defaultdict(int)
    divergent: dict[int, int] = defaultdict(int)
    for block, step in enumerate(counters.program.steps):
        for statement in step.statements:
            lanes[statement.number] += counters.lanes[block]
            warps[statement.number] += counters.warps[block]
        if counters.divergent[block]:
            divergent[step.statements[-1].number] += counters.divergent[block]
    return Executed(lanes, warps, divergent)


def _replays(counters: Counters) -> dict[int, float]:
    """Return the mean number of distinct addresses of a warp's constant load, by statement."""
    return {
        counters.program.sites[index].number: traffic.addresses / traffic.requests
        for (index, space), traffic in counters.traffic.items()
        if space == "const" and traffic.requests
    }


def _issued(kernel: MachineKernel, found: Executions, replays: Mapping[int, float]) -> dict[str, Floats]:
    """Return the figures of each instruction, by name."""
    operations, branches = kernel.operations, kernel.branches
    constant = operations == instructions.LDC
    addresses = found.addresses
    if replays:
        addresses = addresses * [replays.get(instruction.number, 1.0) for instruction in kernel.code]
    figures = {
        **figures_of(found.warps, found.threads, found.working),
        "smsp__sass_branch_targets.sum": found.warps * branches,
        "smsp__sass_branch_targets_threads_divergent.sum": found.divergent,
        "gpulab__table_jumps.sum": found.warps * kernel.tabled,
        "smsp__sass_branch_targets_threads_uniform.sum": found.warps * branches - found.divergent,
        "smsp__inst_executed_op_ldc.sum": found.warps * constant,
        "idc__requests.sum": found.active * addresses * constant,
        "smsp__inst_executed_op_shared_ld.sum": found.warps * (operations == instructions.LDS),
        "smsp__inst_executed_op_shared_st.sum": found.warps * (operations == instructions.STS),
    }
    for pipe, members in _PIPES.items():
        figures[f"smsp__inst_executed_pipe_{pipe}.sum"] = found.warps * np.isin(operations, members)
    for operation, name in _FLOATS.items():
        figures[f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"] = found.working * (operations == operation)
    return figures
