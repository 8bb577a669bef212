"""Common bounds of `uses[...]` checks: figures that show whether a kernel uses a concept.

A bound is a pure function of the simulated GPU's counters. The names are Nsight Compute's, so that a figure can be
compared with a real GPU. docs/counters.md defines each counter.
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
    """A minimum of constant-memory reads per warp, so that the data comes through the constant cache."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[CONSTANT_REQUESTS], usage.counters[WARPS])

    hint = "All threads need the same values in the same order. Which memory holds them?"
    return Bound("per warp", measure, at_least=at_least, hint=hint, title="Too few reads of constant memory")


def constant_broadcast(at_most: float = 1.0) -> Bound:
    """A maximum of addresses per constant-memory read of a warp: several addresses are served one after the other."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[CONSTANT_WORDS], usage.counters[CONSTANT_REQUESTS])

    hint = "Constant memory serves one address per warp at a time. What does the index depend on?"
    return Bound(
        "addresses per request", measure, at_most=at_most, hint=hint, title="Scattered reads of constant memory"
    )


def bank_conflicts(at_most: float) -> Bound:
    """A maximum of bank conflicts per access of a warp to shared memory, on average; 0 allows none."""

    def measure(usage: Usage) -> float:
        return _ratio(_total(usage.counters, BANK_CONFLICTS), _total(usage.counters, SHARED_REQUESTS))

    hint = "Which banks do the 32 lanes of a warp access together? Word k is in bank k % 32."
    return Bound("per access to shared memory", measure, at_most=at_most, hint=hint, title="Too many bank conflicts")


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


def global_traffic(at_most: float) -> Bound:
    """A maximum of sectors of global memory per sector of the exercise's `min_bytes`."""

    def measure(usage: Usage) -> float:
        least = (usage.min_bytes or 0.0) / SECTOR_BYTES
        return _ratio(_total(usage.counters, GLOBAL_SECTORS), least)

    hint = "Which addresses do neighbouring lanes access? A sector has 32 bytes and is moved as a whole."
    return Bound("times the minimum", measure, at_most=at_most, hint=hint, title="Too much global memory traffic")


def additions(at_most: float) -> Bound:
    """A maximum of floating-point additions per element, over all threads: a work-efficient algorithm needs few."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[ADDITIONS], math.prod(np.atleast_1d(usage.problem.size)))

    hint = "How many additions does a step need, and how many steps are there? Can later steps have fewer?"
    return Bound("per element", measure, at_most=at_most, hint=hint, title="Too many additions")


def barriers(at_most: float) -> Bound:
    """A maximum of barriers per warp."""

    def measure(usage: Usage) -> float:
        return _ratio(usage.counters[BARRIERS], usage.counters[WARPS])

    hint = "Which barriers separate threads of different warps, and which only threads of one warp?"
    return Bound("per warp", measure, at_most=at_most, hint=hint, title="Too many barriers")


def _total(counters: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(counters[name] for name in names)


def _ratio(count: float, of: float) -> float:
    return count / of if of else 0.0
