"""Named figures of a launch and of each source line, made of its raw counts; `devices.metrics` says what they mean.

Everything is first charged to the source line of the instruction that did it; a launch's figures are the sums. What
warps moved is counted as it is; what they issued comes from the machine code where it can be read, else from `rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pytest_gpulab.devices.metrics import METRICS, with_ratios
from pytest_gpulab.devices.protocol import InstructionSource, LineCounters, SourceLine
from pytest_gpulab.devices.simulated.execution.counters import Counters, Traffic
from pytest_gpulab.devices.simulated.machine import sass
from pytest_gpulab.devices.simulated.machine.code import MachineBlock
from pytest_gpulab.devices.simulated.machine.executions import Execution, executions
from pytest_gpulab.devices.simulated.machine.flow import Executed
from pytest_gpulab.devices.simulated.rules import by_rules, figures_of
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.simulated.translation.weights import is_corrected

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_FLOATS = {sass.FADD: "fadd", sass.FMUL: "fmul", sass.FFMA: "ffma"}
_BY_LINE = tuple(metric.name for metric in METRICS if metric.name.endswith(".sum"))
Figures = Mapping[str, float]


class Accounts:
    """A launch's figures by source line (None: a place that the compiler does not name).

    Args:
        counters: of the blocks that ran.
        code: the kernel's machine code, or nothing where it cannot be read.
        launched: threads of the blocks that ran.

    Attributes:
        source: what the figures of issued instructions are made from.
    """

    def __init__(self, counters: Counters, code: Sequence[MachineBlock], launched: int) -> None:
        self._lines: dict[SourceLine | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        counters.finish()
        self._touched = counters.touched
        for where, figures in _memory(counters):
            self._charge(where, figures)
        machine = _by_machine_code(counters, code, launched)
        self.source: InstructionSource = "rules" if machine is None else "machine code"
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


def _memory(counters: Counters) -> Iterator[tuple[SourceLine | None, Figures]]:
    """What was counted exactly: memory traffic, barriers, PTX instructions."""
    for (index, space), traffic in counters.traffic.items():
        site = counters.program.sites[index]
        yield site.where, _traffic_figures(site, space, traffic)
    for block, step in enumerate(counters.program.steps):
        for statement in step.statements:
            yield statement.where, {"gpulab__ptx_thread_inst.sum": counters.lanes[block]}
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


def _by_machine_code(
    counters: Counters, code: Sequence[MachineBlock], launched: int
) -> list[tuple[SourceLine | None, Figures]] | None:
    """Figures of issued instructions from the machine code; None where there is none or it is too large."""
    executed: dict[int, Executed] = {}
    parted: dict[int, int] = defaultdict(int)
    places: dict[int, SourceLine | None] = {}
    corrected = set()
    for block, step in enumerate(counters.program.steps):
        for statement in step.statements:
            number = statement.number
            before = executed.get(number, Executed(0, 0, block))
            executed[number] = before.more(counters.lanes[block], counters.warps[block])
            places[number] = statement.where
            if is_corrected(statement):
                corrected.add(number)
        if step.end == "branch" and step.statements:
            parted[step.statements[-1].number] += counters.parted[block]
    executed.pop(-1, None)
    found = executions(code, executed, parted, frozenset(corrected), launched) if code else None
    if found is None:
        return None
    replays = _replays(counters)
    return [(places.get(execution.number), _issued(execution, replays)) for execution in found]


def _replays(counters: Counters) -> dict[int, float]:
    """Addresses that a warp's load of a constant asks for, on average, by statement."""
    return {
        counters.program.sites[index].number: traffic.addresses / traffic.requests
        for (index, space), traffic in counters.traffic.items()
        if space == "const" and traffic.requests
    }


def _issued(execution: Execution, replays: Mapping[int, float]) -> Figures:
    instruction = execution.instruction
    figures = dict(figures_of(execution.warps, execution.threads, execution.working))
    operation = instruction.operation
    if instruction.jumps and instruction.conditional:
        figures["smsp__sass_branch_targets.sum"] = execution.warps
        figures["smsp__sass_branch_targets_threads_divergent.sum"] = execution.parted
        figures["smsp__sass_branch_targets_threads_uniform.sum"] = execution.warps - execution.parted
    elif operation == sass.LDC:
        figures["smsp__inst_executed_op_ldc.sum"] = execution.warps
        figures["idc__requests.sum"] = execution.active * replays.get(instruction.number, 1.0)
    elif operation == sass.LDS:
        figures["smsp__inst_executed_op_shared_ld.sum"] = execution.warps
    elif operation == sass.STS:
        figures["smsp__inst_executed_op_shared_st.sum"] = execution.warps
    elif operation in _FLOATS:
        figures[f"smsp__sass_thread_inst_executed_op_{_FLOATS[operation]}_pred_on.sum"] = execution.working
    return figures
