"""The bottleneck of a launch in one sentence for the student: `KIND: cause, source line, share of the time`.

The kinds are fixed, so that grading has a hint for each of them.
"""

from collections.abc import Callable, Mapping, Sequence

from pytest_gpulab.devices.hardware.metrics import BANK_CONFLICTS, SHARED_REQUESTS, SHARED_WAVEFRONTS, summed
from pytest_gpulab.devices.protocol import LineCounters

from .demands import Demands
from .model import Estimate

KINDS = (
    "shared memory", "global memory", "constant memory", "idle lanes", "instructions", "special functions",
    "arithmetic", "barriers", "atomics", "latency", "few blocks", "many blocks", "waiting for blocks",
    "memory bandwidth", "local memory", "fences", "calls",
)  # fmt: skip
"""The first words of the sentences."""

FEW_LANES = 20  # of 32; with fewer active lanes, idle lanes are the cause
CONFLICTS = 0.25  # share of the wavefronts from which bank conflicts are the cause
WASTE = 1.5  # sectors over the least possible number, from which scattered accesses are the cause
HIGH_OCCUPANCY = 0.5

_ISSUED = "smsp__inst_executed.sum"
_LANES = "smsp__thread_inst_executed_pred_on.sum"

Counters = Mapping[str, float]
_Amount = Callable[[Counters], float]


def bottleneck(found: Estimate, counters: Counters, lines: Sequence[LineCounters], needs: Demands) -> str:
    """Return the sentence on the bottleneck of a launch."""
    part = found.bottleneck
    share = f"{100 * min(found.parts_ms[part] / max(found.elapsed_ms, 1e-12), 1):.0f} % of the time"
    if part in ("instruction issue", "branch unit"):
        return _instructions(counters, lines, share)
    if part == "load/store unit":
        return _accesses(counters, lines, needs, share)
    if part in ("memory bandwidth", "L2 bandwidth"):
        return _bandwidth(needs, part, share)
    if part == "constant memory":
        return _constants(counters, lines, share)
    if part == "latency":
        return _latency(found, lines, share)
    if part == "atomics" and not counters.get("gpulab__atomic_passes_global.sum"):
        return f"global memory: the number of stores to the same words, one after the other, takes {share}"
    return _PLAIN[part].format(at=_at(lines, _AMOUNTS.get(part)), share=share)


def _at(lines: Sequence[LineCounters], amount: _Amount | None) -> str:
    """Return the line with the largest amount, such as ` at kernel.cu:7`; empty if there is none."""
    known = [(amount(line.counters), line.where) for line in lines] if amount else []
    most = max(known, key=lambda entry: entry[0], default=(0.0, None))
    return f" at {most[1]}" if most[0] > 0 else ""


def _instructions(counters: Counters, lines: Sequence[LineCounters], share: str) -> str:
    lanes = counters.get(_LANES, 0.0) / max(counters[_ISSUED], 1.0)
    if 0 < lanes < FEW_LANES:
        at = _at(lines, lambda line: 32 * line.get(_ISSUED, 0.0) - line.get(_LANES, 0.0))
        return f"idle lanes: {lanes:.0f} of 32 lanes active on average, most idle lanes{at}; instructions take {share}"
    at = _at(lines, lambda line: line.get(_ISSUED, 0.0))
    return f"instructions: issuing them takes {share}, most{at}" if at else f"instructions: issuing them takes {share}"


def _accesses(counters: Counters, lines: Sequence[LineCounters], needs: Demands, share: str) -> str:
    wavefronts, conflicts = summed(counters, SHARED_WAVEFRONTS), summed(counters, BANK_CONFLICTS)
    others = needs.global_passes + needs.stored_runs - needs.local_accesses
    if needs.local_accesses > max(wavefronts, others):
        return f"local memory: accesses to threads' own arrays take {share}"
    if wavefronts > needs.global_passes and conflicts > CONFLICTS * wavefronts:
        worst = max(lines, key=lambda line: summed(line.counters, BANK_CONFLICTS), default=None)
        if worst is None:
            return f"shared memory: bank conflicts; shared accesses take {share}"
        each = summed(worst.counters, SHARED_WAVEFRONTS) / max(summed(worst.counters, SHARED_REQUESTS), 1.0)
        return f"shared memory: {each:.0f}-way bank conflicts at {worst.where}; shared accesses take {share}"
    scattered = _scattered(needs)
    if scattered and needs.global_passes + needs.stored_runs > wavefronts:
        return f"global memory: {scattered}; its accesses take {share}"
    if wavefronts > needs.global_passes + needs.stored_runs:
        return f"shared memory: accesses without bank conflicts take {share}" + _at(
            lines, lambda c: summed(c, SHARED_WAVEFRONTS)
        )
    return f"global memory: the number of accesses takes {share}"


def _scattered(needs: Demands) -> str:
    """Describe the line with accesses to many more sectors than necessary; empty if there is none."""
    worst = needs.most_scattered
    if worst is None or worst.sectors < WASTE * worst.least_sectors:
        return ""
    at = f" at {worst.where}" if worst.where else ""
    return f"{worst.sectors:.0f} sectors per request instead of {worst.least_sectors:.0f}{at}"


def _bandwidth(needs: Demands, part: str, share: str) -> str:
    if needs.local_l2_bytes > needs.l2_bytes / 2:
        return f"local memory: threads' own arrays do not fit into L1; {part} takes {share}"
    scattered = _scattered(needs)
    if scattered:
        return f"global memory: {scattered}; {part} takes {share}"
    speed = "the memory's" if part == "memory bandwidth" else "the L2 cache's"
    return f"memory bandwidth: no sector is wasted; transfers at {speed} peak rate take {share}"


def _constants(counters: Counters, lines: Sequence[LineCounters], share: str) -> str:
    def each(line: Counters) -> float:
        requests = line.get("gpulab__constant_requests.sum", 0.0)
        return line.get("idc__requests.sum", 0.0) / requests if requests else 0.0

    worst = max(lines, key=lambda line: each(line.counters), default=None)
    if worst is None or each(worst.counters) < WASTE:
        return f"constant memory: its loads take {share}"
    return (
        f"constant memory: {each(worst.counters):.0f} different addresses per warp at {worst.where}, "
        f"one after the other, take {share}"
    )


def _latency(found: Estimate, lines: Sequence[LineCounters], share: str) -> str:
    if found.used_sms < 1:
        return f"few blocks: {100 * found.used_sms:.0f} % of the multiprocessors have a block; waiting takes {share}"
    if found.occupancy < HIGH_OCCUPANCY:
        return f"latency: an occupancy of {100 * found.occupancy:.0f} % is too low to hide waiting, which takes {share}"
    at = _at(lines, lambda line: line.get("gpulab__barriers.sum", 0.0))
    waiting = f"for each other at barriers (most{at}) and for data" if at else "for data"
    return f"latency: warps wait {waiting}, which takes {share}"


_ARITHMETIC = (
    "special function units", "double-precision units", "integer units", "integer multipliers", "floating-point units",
)  # fmt: skip
_AMOUNTS: Mapping[str, _Amount] = {
    "atomics": lambda line: line.get("gpulab__atomic_passes_global.sum", 0.0),
    "barriers": lambda line: line.get("gpulab__barriers.sum", 0.0),
} | dict.fromkeys(_ARITHMETIC, lambda line: line.get(_ISSUED, 0.0))

_PLAIN: Mapping[str, str] = {
    "special function units": "special functions: sines, roots, exponentials, divisions take {share}, most{at}",
    "double-precision units": "arithmetic: double precision takes {share}, most{at}",
    "integer units": "arithmetic: integer sums, comparisons, shifts and logic take {share}, most{at}",
    "integer multipliers": "arithmetic: integer products take {share}, most{at}",
    "floating-point units": "arithmetic: float sums and products take {share}, most{at}",
    "barriers": "barriers: executing them takes {share}, most{at}",
    "atomics": "atomics: updates of the same words, one after the other{at}, take {share}",
    "starting blocks": "many blocks: starting them takes {share}",
    "calls": "calls: returns, calls through pointers and jumps of `switch` take {share}",
    "last block": "last block: what it does after all others have ended takes {share}",
    "memory fences": "fences: warps wait until their writes are visible to other blocks, which takes {share}",
    "waiting for other blocks": "waiting for blocks: each block waits for the one before, which takes {share}",
}
