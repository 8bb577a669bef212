"""What limits a launch, in a sentence for whoever wrote the kernel: `KIND: what happens, where, and how much it takes`.

The kinds are few and stay the same, so that grading can ask a question for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_gpulab.devices.protocol import LineCounters

from .demands import Demands
from .model import Estimate

KINDS = (
    "shared memory", "global memory", "constant memory", "idle lanes", "instructions", "special functions",
    "arithmetic", "barriers", "atomics", "latency", "few blocks", "many blocks", "waiting for blocks",
    "memory bandwidth",
)  # fmt: skip
"""The first words of a sentence."""

FEW_LANES = 20  # of 32, below which idle lanes are what counts
CONFLICTS = 0.25  # of the wavefronts, from where bank conflicts are what counts
WASTE = 1.5  # sectors over those that the bytes fill, from where scattered accesses are what counts
FULL = 0.5  # occupancy

_ISSUED = "smsp__inst_executed.sum"
_LANES = "smsp__thread_inst_executed_pred_on.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SHARED_REQUESTS = "gpulab__shared_requests_op_{}.sum"
_OPS = ("ld", "st", "atom")

Counters = Mapping[str, float]
_Amount = Callable[[Counters], float]


def bottleneck(found: Estimate, counters: Counters, lines: Sequence[LineCounters], asked: Demands) -> str:
    """Return what limits a launch.

    Args:
        found: the estimate.
        counters, lines: of the launch and of its source lines.
        asked: what it asks of the GPU.
    """
    part = found.bottleneck
    share = f"{100 * min(found.parts_ms[part] / max(found.elapsed_ms, 1e-12), 1):.0f} % of the time"
    if part == "instruction issue":
        return _instructions(counters, lines, share)
    if part == "load/store unit":
        return _accesses(counters, lines, asked, share)
    if part in ("memory bandwidth", "L2 bandwidth"):
        return _bandwidth(asked, part, share)
    if part == "constant memory":
        return _constants(counters, lines, share)
    if part == "latency":
        return _latency(found, lines, share)
    return _PLAIN[part].format(at=_at(lines, _ASKED.get(part)), share=share)


def _at(lines: Sequence[LineCounters], amount: _Amount | None) -> str:
    """Say at which line there is most of something; nothing where none is known."""
    known = [(amount(line.counters), line.where) for line in lines] if amount else []
    most = max(known, key=lambda entry: entry[0], default=(0.0, None))
    return f" at {most[1]}" if most[0] > 0 else ""


def _sum(counters: Counters, name: str) -> float:
    return sum(counters.get(name.format(op), 0.0) for op in _OPS)


def _instructions(counters: Counters, lines: Sequence[LineCounters], share: str) -> str:
    lanes = counters.get(_LANES, 0.0) / max(counters[_ISSUED], 1.0)
    if 0 < lanes < FEW_LANES:
        at = _at(lines, lambda line: 32 * line.get(_ISSUED, 0.0) - line.get(_LANES, 0.0))
        return f"idle lanes: on average {lanes:.0f} of 32 lanes work, most are idle{at}; instructions take {share}"
    at = _at(lines, lambda line: line.get(_ISSUED, 0.0))
    return f"instructions: issuing them takes {share}, most{at}" if at else f"instructions: issuing them takes {share}"


def _accesses(counters: Counters, lines: Sequence[LineCounters], asked: Demands, share: str) -> str:
    wavefronts, conflicts = _sum(counters, _WAVEFRONTS), _sum(counters, _CONFLICTS)
    if wavefronts > asked.global_passes and conflicts > CONFLICTS * wavefronts:
        worst = max(lines, key=lambda line: _sum(line.counters, _CONFLICTS), default=None)
        if worst is None:
            return f"shared memory: bank conflicts; shared accesses take {share}"
        each = _sum(worst.counters, _WAVEFRONTS) / max(_sum(worst.counters, _SHARED_REQUESTS), 1.0)
        return f"shared memory: {each:.0f}-way bank conflicts at {worst.where}; shared accesses take {share}"
    scattered = _scattered(asked)
    if scattered and asked.global_passes + asked.stored_lines > wavefronts:
        return f"global memory: {scattered}; its accesses take {share}"
    if wavefronts > asked.global_passes + asked.stored_lines:
        return f"shared memory: accesses without bank conflicts take {share}" + _at(
            lines, lambda c: _sum(c, _WAVEFRONTS)
        )
    return f"global memory: the number of accesses takes {share}"


def _scattered(asked: Demands) -> str:
    """Say at which line warps touch more sectors than their bytes fill."""
    worst = asked.most_scattered
    if worst is None or worst.sectors < WASTE * worst.least_sectors:
        return ""
    at = f" at {worst.where}" if worst.where else ""
    return f"{worst.sectors:.0f} sectors a request where {worst.least_sectors:.0f} would do{at}"


def _bandwidth(asked: Demands, part: str, share: str) -> str:
    scattered = _scattered(asked)
    if scattered:
        return f"global memory: {scattered}; {part} takes {share}"
    speed = "the memory's" if part == "memory bandwidth" else "the L2 cache's"
    return f"memory bandwidth: no sector is wasted, and {share} is {speed} speed"


def _constants(counters: Counters, lines: Sequence[LineCounters], share: str) -> str:
    def each(line: Counters) -> float:
        requests = line.get("gpulab__constant_requests.sum", 0.0)
        return line.get("idc__requests.sum", 0.0) / requests if requests else 0.0

    worst = max(lines, key=lambda line: each(line.counters), default=None)
    if worst is None or each(worst.counters) < WASTE:
        return f"constant memory: its loads take {share}"
    return (
        f"constant memory: {each(worst.counters):.0f} different addresses in a warp at {worst.where}, "
        f"one after the other, take {share}"
    )


def _latency(found: Estimate, lines: Sequence[LineCounters], share: str) -> str:
    if found.used_sms < 1:
        return f"few blocks: only {100 * found.used_sms:.0f} % of the multiprocessors have one; waiting takes {share}"
    if found.occupancy < FULL:
        room = f"{100 * found.occupancy:.0f} % of the warps that an SM could hold"
        return f"latency: {room} are too few to hide that each of them waits, {share}"
    at = _at(lines, lambda line: line.get("gpulab__barriers.sum", 0.0))
    waiting = f"for each other at the barriers (most{at}) and for data" if at else "for data"
    return f"latency: warps wait {waiting}, {share}"


def _atomics(line: Counters) -> float:
    return line.get("gpulab__atomic_passes_global.sum", 0.0)


_ASKED: Mapping[str, _Amount] = {
    "atomics": _atomics,
    "barriers": lambda line: line.get("gpulab__barriers.sum", 0.0),
    "special function units": lambda line: line.get(_ISSUED, 0.0),
    "double-precision units": lambda line: line.get(_ISSUED, 0.0),
    "integer multipliers": lambda line: line.get(_ISSUED, 0.0),
    "floating-point units": lambda line: line.get(_ISSUED, 0.0),
}

_PLAIN: Mapping[str, str] = {
    "special function units": "special functions: sines, roots, exponentials, divisions take {share}, most{at}",
    "double-precision units": "arithmetic: double precision takes {share}, most{at}",
    "integer multipliers": "arithmetic: integer products take {share}, most{at}",
    "floating-point units": "arithmetic: float sums and products take {share}, most{at}",
    "barriers": "barriers: warps that come to one take {share}, most{at}",
    "atomics": "atomics: updates of the same words, one after the other{at}, take {share}",
    "starting blocks": "many blocks: starting them takes {share}",
    "waiting for other blocks": "waiting for blocks: each for the one before, {share}",
}
