"""For instructors: the usual bounds of `uses[...]` checks, each a figure that shows whether an idea was really used.

A bound is a pure function of the simulated GPU's counters; the names are Nsight Compute's, so that the same figure can
be looked up on a real GPU. `docs/counters.md` says what each counter counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .exercise import Bound, Usage

CONSTANT_REQUESTS = "gpulab__constant_requests.sum"
CONSTANT_WORDS = "gpulab__constant_words.sum"
SHARED_REQUESTS = ("gpulab__shared_requests_op_ld.sum", "gpulab__shared_requests_op_st.sum")
BANK_CONFLICTS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
)
GLOBAL_SECTORS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)
INSTRUCTIONS, WORKING_LANES = "smsp__inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum"
ADDITIONS = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
BARRIERS, WARPS = "gpulab__barriers.sum", "gpulab__warps.sum"
SECTOR_BYTES = 32


def constant_reads(at_least: float) -> Bound:
    """So many reads of constant memory a warp: the data really comes through the constant path."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[CONSTANT_REQUESTS], usage.counters[WARPS])

    hint = "Which memory do the values come from that every thread needs in the same order?"
    return Bound("per warp", measure, at_least=at_least, hint=hint, title="Too few reads of constant memory")


def constant_broadcast(at_most: float = 1.0) -> Bound:
    """All lanes of a warp read constant memory at one address: other addresses are served one after the other."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[CONSTANT_WORDS], usage.counters[CONSTANT_REQUESTS])

    hint = "Constant memory hands one address at a time to a whole warp: on what does the index depend?"
    return Bound(
        "addresses per request", measure, at_most=at_most, hint=hint, title="Scattered reads of constant memory"
    )


def bank_conflicts(at_most: float) -> Bound:
    """Passes that bank conflicts add to an access to shared memory by a warp, on average; 0 has none."""

    def measure(usage: Usage) -> float:
        return _ratio(_total(usage.counters, BANK_CONFLICTS), _total(usage.counters, SHARED_REQUESTS))

    hint = "Which banks do the 32 lanes of a warp reach at once? Word k lies in bank k % 32."
    return Bound("per access to shared memory", measure, at_most=at_most, hint=hint, title="Too many bank conflicts")


def working_lanes(at_least: float, file: str | None = None) -> Bound:
    """Lanes, of 32, that work in an instruction of a warp, on average: in all instructions or in one source file's."""

    def measure(usage: Usage) -> float:
        counters = usage.counters if file is None else usage.files.get(file, {})
        return _ratio(counters.get(WORKING_LANES, 0.0), counters.get(INSTRUCTIONS, 0.0))

    place = "" if file is None else f" in {file}"
    hint = "Which threads of one warp take which branch? A warp goes through every branch that one of its lanes takes."
    return Bound(
        f"of 32 lanes active per instruction{place}", measure, at_least=at_least, hint=hint, title="Divergent branches"
    )


def global_traffic(at_most: float) -> Bound:
    """Sectors of global memory that warps ask for, as a multiple of the fewest that any solution needs.

    The exercise's `min_bytes` says how many those are.
    """

    def measure(usage: Usage) -> float:
        least = (usage.min_bytes or 0.0) / SECTOR_BYTES
        return _ratio(_total(usage.counters, GLOBAL_SECTORS), least)

    hint = "Which addresses do neighbouring lanes ask for? A sector has 32 bytes and is moved as a whole."
    return Bound("times what is needed", measure, at_most=at_most, hint=hint, title="Too much global memory traffic")


def additions(at_most: float) -> Bound:
    """Floating-point additions for each element, all threads together: a work-efficient algorithm needs a few."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[ADDITIONS], math.prod(np.atleast_1d(usage.problem.size)))

    hint = "How many additions does a step take, and how many steps are there? Can later steps do with fewer?"
    return Bound("per element", measure, at_most=at_most, hint=hint, title="Too many additions")


def barriers(at_most: float) -> Bound:
    """Barriers that a warp comes to."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[BARRIERS], usage.counters[WARPS])

    hint = "Which barriers separate threads of different warps, and which only threads of one warp?"
    return Bound("per warp", measure, at_most=at_most, hint=hint, title="Too many barriers")


def _total(counters: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(counters[name] for name in names)


def _ratio(count: float, of: float) -> float:
    return count / of if of else 0.0
