"""Each source line's share of a launch's estimated time.

A unit of the GPU with the time t has the share t^p over the sum of all t^p, with the exponent of the cost model: the
relative derivative of the estimate. It is distributed to the lines in proportion to their demands: instructions for
issue slots and arithmetic units, passes for load/store units, addresses for constant memory, sectors for caches and
memory, barriers, lanes of atomics. Waiting is distributed by rough latencies (`LATENCIES`).
"""

from collections.abc import Callable, Iterable, Mapping

from pytest_gpulab.devices.hardware.metrics import GLOBAL_REQUESTS, GLOBAL_SECTORS, SHARED_WAVEFRONTS, summed
from pytest_gpulab.devices.protocol import LineCounters

TIME_SHARE = "gpulab__time_share.pct"
ISSUED = "smsp__inst_executed.sum"

Counters = Mapping[str, float]

# Cycles, of the order of microbenchmarks of recent GPUs; only their ratios matter here.
LATENCIES = {ISSUED: 4.0, "global": 400.0, "shared": 30.0, "gpulab__barriers.sum": 30.0}


def with_shares(lines: Iterable[LineCounters], parts_ms: Mapping[str, float], power: float) -> tuple[LineCounters, ...]:
    """Return the lines of a launch with their share of the time in percent; the sum is 100.

    `parts_ms` is the time of each unit of the GPU, `power` the exponent of the norm that combines them.
    """
    lines = tuple(lines)
    shares = [0.0] * len(lines)
    whole = sum(value**power for value in parts_ms.values())
    for part, value in parts_ms.items():
        demand = _DEMANDS.get(part, _issued)
        amounts = [demand(line.counters) for line in lines]
        if not sum(amounts):
            amounts = [_issued(line.counters) for line in lines]
        if sum(amounts) and whole:
            factor = value**power / whole / sum(amounts)
            shares = [share + factor * amount for share, amount in zip(shares, amounts, strict=True)]
    total = sum(shares) or 1.0
    return tuple(
        line._replace(counters={**line.counters, TIME_SHARE: 100 * share / total})
        for line, share in zip(lines, shares, strict=True)
    )


def _issued(counters: Counters) -> float:
    return counters.get(ISSUED, 0.0)


def _passes(counters: Counters) -> float:
    """Return passes: wavefronts of shared memory; requests of global memory, or sectors / 4 if that is more."""
    return summed(counters, SHARED_WAVEFRONTS) + max(
        summed(counters, GLOBAL_REQUESTS), summed(counters, GLOBAL_SECTORS) / 4
    )


def _atomics(counters: Counters) -> float:
    return sum(counters.get(f"gpulab__atomic_passes_{space}.sum", 0.0) for space in ("global", "shared"))


def _wait(counters: Counters) -> float:
    """Return the cycles of waiting; stores are not waited for."""
    plain = sum(counters.get(name, 0.0) * LATENCIES[name] for name in (ISSUED, "gpulab__barriers.sum"))
    loads = summed(counters, GLOBAL_REQUESTS, ("ld", "atom"))
    return plain + loads * LATENCIES["global"] + summed(counters, SHARED_WAVEFRONTS) * LATENCIES["shared"]


_DEMANDS: Mapping[str, Callable[[Counters], float]] = {
    "load/store unit": _passes,
    "constant memory": lambda counters: counters.get("idc__requests.sum", 0.0),
    "barriers": lambda counters: counters.get("gpulab__barriers.sum", 0.0),
    "L2 bandwidth": lambda counters: summed(counters, GLOBAL_SECTORS, ("ld", "atom")),
    "L2 bandwidth for stores": lambda counters: summed(counters, GLOBAL_SECTORS, ("st", "atom", "red")),
    "memory bandwidth": lambda counters: summed(counters, GLOBAL_SECTORS),
    "atomics": _atomics,
    "latency": _wait,
    "waiting for other blocks": lambda counters: summed(counters, GLOBAL_REQUESTS, ("ld", "atom")),
}
