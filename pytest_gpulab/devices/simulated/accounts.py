"""Named figures of a launch and of each source line, made of its raw counts; `devices.metrics` says what they mean.

Everything is first charged to the source line of the instruction that did it; a launch's figures are the sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pytest_gpulab.devices.metrics import with_ratios
from pytest_gpulab.devices.protocol import LineCounters, SourceLine
from pytest_gpulab.devices.simulated.execution.counters import Counters, Traffic
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.simulated.translation.weights import weight

ISSUED, THREADS = "smsp__inst_executed.sum", "smsp__thread_inst_executed.sum"
WORKING = "smsp__thread_inst_executed_pred_on.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_FLOATS = {("add", "f32"): "fadd", ("sub", "f32"): "fadd", ("mul", "f32"): "fmul", ("fma", "f32"): "ffma"}
_ALWAYS = (
    ISSUED, THREADS, WORKING, "idc__requests.sum", "gpulab__constant_requests.sum", "gpulab__constant_words.sum",
    "gpulab__barriers.sum", "gpulab__ptx_thread_inst.sum", "gpulab__atomic_passes_global.sum",
    "gpulab__atomic_passes_shared.sum", "smsp__sass_branch_targets.sum",
    "smsp__sass_branch_targets_threads_uniform.sum", "smsp__sass_branch_targets_threads_divergent.sum",
    *(name.format(op) for name in (_REQUESTS, _SECTORS) for op in ("ld", "st", "atom", "red")),
    *(name.format(op) for name in (_WAVEFRONTS, _CONFLICTS, "gpulab__shared_requests_op_{}.sum")
      for op in ("ld", "st", "atom")),
    *(f"smsp__inst_executed_op_shared_{op}.sum" for op in ("ld", "st")),
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")),
)  # fmt: skip
"""What a launch's figures hold even where nothing of the kind happened."""


class Accounts:
    """A launch's figures by source line (None: a place that the compiler does not name)."""

    def __init__(self, counters: Counters) -> None:
        self._lines: dict[SourceLine | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._touched = counters.touched
        for (index, space), traffic in counters.traffic.items():
            site = counters.program.sites[index]
            self._charge(site.where, _traffic_figures(site, space, traffic))
        self._execution(counters)

    def _charge(self, where: SourceLine | None, figures: Mapping[str, float]) -> None:
        line = self._lines[where]
        for name, value in figures.items():
            if value:
                line[name] += value

    def _execution(self, counters: Counters) -> None:
        for block, step in enumerate(counters.program.steps):
            warps, lanes = counters.warps[block], counters.lanes[block]
            for statement in step.statements:
                self._charge(statement.where, _statement_figures(statement, warps, lanes))
            if step.end == "barrier" and step.barrier is not None:
                self._charge(step.barrier.where, {"gpulab__barriers.sum": warps})
            if step.end == "branch":
                self._charge(step.statements[-1].where, _branch_figures(warps, counters.parted[block]))

    def totals(self, scale: float) -> dict[str, float]:
        """Return the launch's figures; `scale` is blocks of the grid over blocks that ran."""
        sums: dict[str, float] = dict.fromkeys(_ALWAYS, 0.0)
        for line in self._lines.values():
            for name, value in line.items():
                sums[name] = sums.get(name, 0.0) + value
        sums["gpulab__touched_sectors.sum"] = self._touched
        return with_ratios({name: value * scale for name, value in sums.items()})

    def lines(self, scale: float) -> tuple[LineCounters, ...]:
        """Return the same by source line, in the order of files and lines."""
        known = [(where, figures) for where, figures in self._lines.items() if where is not None]
        known.sort(key=lambda entry: (entry[0].file, entry[0].line))
        return tuple(
            LineCounters(where, with_ratios({name: value * scale for name, value in figures.items()}))
            for where, figures in known
        )


def _traffic_figures(site: Site, space: str, traffic: Traffic) -> dict[str, float]:
    op = site.op
    if space == "const":
        return {
            "gpulab__constant_requests.sum": traffic.requests,
            "gpulab__constant_words.sum": traffic.units,
            "idc__requests.sum": traffic.addresses,
        }
    if space == "global":
        figures = {_REQUESTS.format(op): traffic.requests, _SECTORS.format(op): traffic.units}
        return {**figures, "gpulab__atomic_passes_global.sum": traffic.passes}
    op = "atom" if op == "red" else op
    return {
        f"gpulab__shared_requests_op_{op}.sum": traffic.requests,
        _WAVEFRONTS.format(op): traffic.units,
        _CONFLICTS.format(op): traffic.units - traffic.ideal,
        "gpulab__atomic_passes_shared.sum": traffic.passes,
        **({f"smsp__inst_executed_op_shared_{op}.sum": traffic.requests} if op != "atom" else {}),
    }


def _statement_figures(statement: Instruction | Call, warps: int, lanes: int) -> dict[str, float]:
    issue = weight(statement)
    figures = {
        ISSUED: warps * issue,
        THREADS: lanes * issue,
        WORKING: lanes * issue,
        "gpulab__ptx_thread_inst.sum": lanes,
    }
    if isinstance(statement, Instruction) and (kind := _FLOATS.get((statement.op[0], statement.op[-1]))):
        figures[f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum"] = lanes
    return figures


def _branch_figures(warps: int, parted: int) -> dict[str, float]:
    return {
        "smsp__sass_branch_targets.sum": warps,
        "smsp__sass_branch_targets_threads_uniform.sum": warps - parted,
        "smsp__sass_branch_targets_threads_divergent.sum": parted,
    }
