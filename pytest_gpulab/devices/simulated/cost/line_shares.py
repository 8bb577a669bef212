"""How much of a launch's estimated time each source line takes: the parts of the estimate, handed out by line.

A part of the GPU that needs the time t has the share t^p over the sum of all t^p, with the exponent of the cost model:
by so much the estimate shrinks, relatively, as the part's time does. The share is handed out to the lines in proportion
to what they ask of the part: instructions of the issue slots and arithmetic units, passes of the load/store units,
addresses of constant memory, sectors of caches and memory, barriers, lanes of atomics. Waiting is handed out by how
long a warp waits for what the lines do, roughly: LATENCIES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pytest_gpulab.devices.protocol import LineCounters

TIME_SHARE = "gpulab__time_share.pct"
ISSUED = "smsp__inst_executed.sum"
_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"

Counters = Mapping[str, float]

# Cycles, of the order that microbenchmarks report for recent GPUs; only their ratios matter here.
LATENCIES = {ISSUED: 4.0, "global": 400.0, "shared": 30.0, "gpulab__barriers.sum": 30.0}


def with_shares(lines: Iterable[LineCounters], parts_ms: Mapping[str, float], power: float) -> tuple[LineCounters, ...]:
    """Return the lines with their share of the time in percent, which together is 100.

    Args:
        lines: of one launch.
        parts_ms: what each part of the GPU needs for the launch, by the cost model's names.
        power: of the norm that makes one time of them.
    """
    lines = tuple(lines)
    shares = [0.0] * len(lines)
    whole = sum(value**power for value in parts_ms.values())
    for part, value in parts_ms.items():
        asked = [_asked(part)(line.counters) for line in lines]
        if not sum(asked):
            asked = [line.counters.get(ISSUED, 0.0) for line in lines]
        if sum(asked) and whole:
            factor = value**power / whole / sum(asked)
            shares = [share + factor * amount for share, amount in zip(shares, asked, strict=True)]
    total = sum(shares) or 1.0
    return tuple(
        replace(line, counters={**line.counters, TIME_SHARE: 100 * share / total})
        for line, share in zip(lines, shares, strict=True)
    )


def _asked(part: str) -> Callable[[Counters], float]:
    """Return what a line asks of a part of the GPU; of a part that is not listed, instructions."""
    return _DEMANDS.get(part, lambda counters: counters.get(ISSUED, 0.0))


def _of_global(counters: Counters, what: str, ops: tuple[str, ...] = ("ld", "st", "atom", "red")) -> float:
    return sum(counters.get(_GLOBAL.format(what, op), 0.0) for op in ops)


def _passes(counters: Counters) -> float:
    """Of shared memory a wavefront; of global memory a request, or a pass for every 4 sectors."""
    return _shared(counters) + max(_of_global(counters, "requests"), _of_global(counters, "sectors") / 4)


def _shared(counters: Counters) -> float:
    return sum(counters.get(_SHARED.format(op), 0.0) for op in ("ld", "st", "atom"))


def _atomics(counters: Counters) -> float:
    return sum(counters.get(f"gpulab__atomic_passes_{space}.sum", 0.0) for space in ("global", "shared"))


def _wait(counters: Counters) -> float:
    """Cycles in which a warp waits for what it asked for: a load answers, a store does not."""
    plain = sum(counters.get(name, 0.0) * LATENCIES[name] for name in (ISSUED, "gpulab__barriers.sum"))
    loads = _of_global(counters, "requests", ("ld", "atom"))
    return plain + loads * LATENCIES["global"] + _shared(counters) * LATENCIES["shared"]


_DEMANDS: Mapping[str, Callable[[Counters], float]] = {
    "load/store unit": _passes,
    "constant memory": lambda counters: counters.get("idc__requests.sum", 0.0),
    "barriers": lambda counters: counters.get("gpulab__barriers.sum", 0.0),
    "L2 bandwidth": lambda counters: _of_global(counters, "sectors", ("ld", "atom")),
    "L2 bandwidth for stores": lambda counters: _of_global(counters, "sectors", ("st", "atom", "red")),
    "memory bandwidth": lambda counters: _of_global(counters, "sectors"),
    "atomics": _atomics,
    "latency": _wait,
    "waiting for other blocks": lambda counters: _of_global(counters, "requests", ("ld", "atom")),
}
