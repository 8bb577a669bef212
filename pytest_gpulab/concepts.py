"""Common bounds of `uses[...]` checks: figures that show whether a kernel uses a concept.

A bound is a pure function of the simulated GPU's counters. The names are Nsight Compute's, so that a figure can be
compared with a real GPU. docs/counters.md defines each counter.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from .exercise import Bound, ExerciseError, Usage

CONSTANT_REQUESTS = "gpulab__constant_requests.sum"
CONSTANT_WORDS = "gpulab__constant_words.sum"
SHARED_REQUESTS = ("gpulab__shared_requests_op_ld.sum", "gpulab__shared_requests_op_st.sum")
SHARED_ATOMICS = "gpulab__shared_requests_op_atom.sum"
ATOMIC_PASSES = ("gpulab__atomic_passes_global.sum", "gpulab__atomic_passes_shared.sum")
BANK_CONFLICTS = tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom"))
GLOBAL_SECTORS = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "atom", "red"))
ATOMIC_SECTORS = GLOBAL_SECTORS[2:]
INSTRUCTIONS, WORKING_LANES = "smsp__inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum"
FLOAT_ADDITIONS = tuple(
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "ffma", "dadd", "dfma")
)
ADDITIONS = *FLOAT_ADDITIONS, "gpulab__data_additions.sum"
BARRIERS, WARPS = ("gpulab__barriers.sum", "gpulab__waits.sum"), "gpulab__warps.sum"
WARPS_AT_BARRIERS = "gpulab__warps_at_barriers.sum"
SECTOR_BYTES, LANES = 32, 32


def constant_reads(at_least: float) -> Bound:
    """A minimum of constant-memory reads per warp, so that the data comes through the constant cache."""
    measure = _per((CONSTANT_REQUESTS,), WARPS)
    hint = "All threads need the same values in the same order. Which memory holds them?"
    return Bound("per warp", measure, at_least=at_least, hint=hint, title="Too few reads of constant memory")


def constant_broadcast(at_most: float = 1.0) -> Bound:
    """A maximum of addresses per constant-memory read of a warp: several addresses are served one after the other."""
    measure = _per((CONSTANT_WORDS,), CONSTANT_REQUESTS)
    hint = "Constant memory serves one address per warp at a time. What does the index depend on?"
    title, companion = "Scattered reads of constant memory", constant_reads(at_least=1)
    return Bound("addresses per request", measure, at_most=at_most, hint=hint, title=title, companion=companion)


def bank_conflicts(at_most: float, accesses: float = math.inf) -> Bound:
    """A maximum of bank conflicts per access of a warp to shared memory, on average; 0 allows none.

    Atomics have conflicts as well, and those on one address count too, as in hardware. Shared memory must be used: the
    companion of this bound is `shared_use(1)`.

    Args:
        at_most: the maximum.
        accesses: the most accesses of a warp per 32 elements that count. More of them, without conflicts, would hide
            the conflicts of the others. Without a limit, as for a matrix product, such accesses lower the average.
    """

    def measure(usage: Usage) -> float:
        counted = _total(usage.counters, (*SHARED_REQUESTS, SHARED_ATOMICS))
        return _ratio(_total(usage.counters, BANK_CONFLICTS), min(counted, accesses / LANES * _elements(usage)))

    hint = "Which banks do the 32 lanes of a warp access together? Word k is in bank k % 32."
    unit, title = "per access to shared memory", "Too many bank conflicts"
    if accesses < math.inf:
        unit += f" (of at most {accesses:g} per {LANES} elements)"
    return Bound(unit, measure, at_most=at_most, hint=hint, title=title, companion=shared_use(at_least=1))


def shared_use(at_least: float) -> Bound:
    """A minimum of accesses to shared memory per warp, atomics included."""
    measure = _per((*SHARED_REQUESTS, SHARED_ATOMICS), WARPS)
    hint = "Which values do several threads of a block need? A block can keep them in shared memory."
    return Bound("accesses per warp", measure, at_least=at_least, hint=hint, title="Shared memory is hardly used")


def shared_reads(at_least: float) -> Bound:
    """A minimum of reads from shared memory per warp."""
    measure = _per(SHARED_REQUESTS[:1], WARPS)
    hint = "Which values are read more than once from global memory? A block can read them once and share them."
    return Bound("reads per warp", measure, at_least=at_least, hint=hint, title="Too few reads of shared memory")


def atomics(at_most: float, memory: Literal["global", "shared"] = "global") -> Bound:
    """A maximum of serialised atomics per element: lanes of a warp at one address take one pass each.

    In global memory, a warp takes at least a pass per sector. So equal lanes that count together are cheaper only if
    the remaining addresses are close to each other.
    At least one atomic must be executed, in either memory.
    """
    name = f"gpulab__atomic_passes_{memory}.sum"

    def measure(usage: Usage) -> float:
        passes = usage.counters[name]
        if memory == "global":
            passes = max(passes, _total(usage.counters, ATOMIC_SECTORS))
        return passes / _elements(usage)

    def measure_all(usage: Usage) -> float:
        return _total(usage.counters, ATOMIC_PASSES)

    hint = "How many threads update one address? Partial results per block need fewer atomics on global memory."
    used = Bound("atomics", measure_all, at_least=1, hint="Which updates can collide?", title="No atomic is used")
    unit, title = f"passes per element in {memory} memory", "Too many atomics"
    return Bound(unit, measure, at_most=at_most, hint=hint, title=title, companion=used)


def working_lanes(at_least: float, file: str | None = None) -> Bound:
    """A minimum of active lanes (of 32) per instruction of a warp, on average, in all code or in one source file."""

    def measure(usage: Usage) -> float:
        counters = usage.counters if file is None else usage.files.get(file, {})
        return _ratio(counters.get(WORKING_LANES, 0.0), counters.get(INSTRUCTIONS, 0.0))

    place = "" if file is None else f" in {file}"
    hint = "Which threads of a warp take which branch? A warp executes every branch that one of its lanes takes."
    return Bound(
        f"of 32 lanes active per instruction{place}", measure, at_least=at_least, hint=hint, title="Divergent branches"
    )


def file_share(at_least: float, file: str) -> Bound:
    """A minimum share of all instructions, by active lanes, that a source file must hold: none is done elsewhere."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.files.get(file, {}).get(WORKING_LANES, 0.0), usage.counters[WORKING_LANES])

    hint = f"Which code repeats what {file} has? Call its functions instead."
    return Bound(
        f"of all instructions are in {file}", measure, at_least=at_least, hint=hint, title="Too much other code"
    )


def instructions(at_most: float) -> Bound:
    """A maximum of instructions per element, over all active lanes: no work is done twice, or for nothing."""
    measure = _per_element((WORKING_LANES,))
    hint = "Which results does no element need? Compute each of them once."
    return Bound("per element", measure, at_most=at_most, hint=hint, title="Too many instructions", none_is_good=True)


def global_traffic(at_most: float) -> Bound:
    """A maximum of global memory traffic, with atomics, relative to the `min_bytes` that the exercise must define."""

    def measure(usage: Usage) -> float:
        if not usage.min_bytes:
            raise ExerciseError("global_traffic compares with the exercise's `min_bytes`: define it")
        return SECTOR_BYTES * _total(usage.counters, GLOBAL_SECTORS) / usage.min_bytes

    hint = (
        "Which addresses do neighbouring lanes access? A sector has 32 bytes and is moved as a whole. Is an element "
        "read or written more than once?"
    )
    unit, title = "times the minimum", "Too much global memory traffic"
    return Bound(unit, measure, at_most=at_most, hint=hint, title=title, none_is_good=True)


def additions(at_most: float) -> Bound:
    """A maximum of additions of data per element, over all threads: a work-efficient algorithm needs few.

    Additions of floats, of doubles and of integers that come from memory count, fused multiply-adds, and those of
    tensor cores.
    """
    measure = _per_element(ADDITIONS)
    hint = "How many additions does a step need, and how many steps are there? Can later steps have fewer?"
    return Bound("per element", measure, at_most=at_most, hint=hint, title="Too many additions", none_is_good=True)


def barriers(at_most: float) -> Bound:
    """A maximum of barriers per warp. A loop that waits for other threads counts as one.

    Warps that pass no block barrier, or few, do not lower the average of the others.
    """

    def measure(usage: Usage) -> float:
        warps = usage.counters[WARPS]
        return _ratio(_total(usage.counters, BARRIERS), min(usage.counters.get(WARPS_AT_BARRIERS) or warps, warps))

    hint = "Which barriers separate threads of different warps, and which only threads of one warp?"
    return Bound("per warp", measure, at_most=at_most, hint=hint, title="Too many barriers", none_is_good=True)


def _per(names: tuple[str, ...], of: str) -> Callable[[Usage], float]:
    """Return a function from a usage to the sum of counters over another counter."""
    return lambda usage: _ratio(_total(usage.counters, names), usage.counters[of])


def _per_element(names: tuple[str, ...]) -> Callable[[Usage], float]:
    return lambda usage: _ratio(_total(usage.counters, names), _elements(usage))


def _elements(usage: Usage) -> float:
    return float(np.prod(usage.problem.size, dtype=float))


def _total(counters: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(counters[name] for name in names)


def _ratio(count: float, of: float) -> float:
    return count / of if of else 0.0
