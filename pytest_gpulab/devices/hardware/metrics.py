"""Metrics of a launch's profile, under Nsight Compute's names or, if it has none, as `gpulab__...`.

There are three levels. *Exact*: counted one by one while the kernel ran, and the same on hardware, however the compiler
translates the kernel's arithmetic. *Modelled*: derived from exact counts and the machine code, or from rules about the
compiler; close to hardware, not equal. *Estimated*: computed by the cost model for a GPU model.

A test checks that the table of docs/counters.md equals this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["exact", "modelled", "estimated"]

# Counters per kind of access, which replaces the braces.
GLOBAL_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
GLOBAL_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
SHARED_REQUESTS = "gpulab__shared_requests_op_{}.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
BANK_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"


def summed(counters: Mapping[str, float], name: str, accesses: tuple[str, ...] = ("ld", "st", "atom", "red")) -> float:
    """Return a counter's sum over kinds of access; shared memory has no `red`."""
    return sum(counters.get(name.format(access), 0.0) for access in accesses)


@dataclass(frozen=True)
class Metric:
    """A metric: its name in profiles, its unit, its level, and its meaning in a sentence."""

    name: str
    unit: str
    level: Level
    meaning: str


_ACCESSES = {"ld": "loads from", "st": "stores to", "atom": "atomics on"}
_OF_GLOBAL = (
    (GLOBAL_REQUESTS, "requests", "{} global memory by a warp"),
    (GLOBAL_SECTORS, "sectors", "32-byte sectors accessed by these requests, counted once per request"),
)
_OF_SHARED = (
    (SHARED_REQUESTS, "requests", "{} shared memory by a warp with at least one lane"),
    (SHARED_WAVEFRONTS, "wavefronts", "passes of these requests, bank conflicts included"),
    (BANK_CONFLICTS, "wavefronts", "passes beyond the minimum for the number of bytes"),
)
_SUM = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_MET = "the maximum of lanes per address in a request, summed over requests"

METRICS: tuple[Metric, ...] = (
    *(Metric(name.format(op), unit, "exact", meaning.format(what))
      for op, what in {**_ACCESSES, "red": "atomics without a result on"}.items()
      for name, unit, meaning in _OF_GLOBAL),
    Metric("gpulab__touched_sectors.sum", "sectors", "exact", "distinct sectors of global memory in the whole launch"),
    *(Metric(name.format(op), unit, "exact", meaning.format(what))
      for op, what in _ACCESSES.items() for name, unit, meaning in _OF_SHARED),
    Metric("gpulab__constant_requests.sum", "requests", "exact", "loads of `__constant__` variables by a warp"),
    Metric("gpulab__constant_words.sum", "words", "exact", "distinct 4-byte words in these requests"),
    Metric("gpulab__atomic_passes_global.sum", "passes", "exact", f"atomics on global memory: {_MET}"),
    Metric("gpulab__atomic_passes_shared.sum", "passes", "exact", f"atomics on shared memory: {_MET}"),
    Metric("gpulab__barriers.sum", "warps", "exact",
           "block barriers and arrivals at asynchronous barriers, counted per warp"),
    Metric("gpulab__table_jumps.sum", "jumps", "modelled",
           "jumps of a `switch` by a table of addresses, once per warp and target"),
    Metric("gpulab__waits.sum", "warps", "exact",
           "loops that read what other threads write until it changes, entered by a warp"),
    Metric("gpulab__warps.sum", "warps", "exact", "warps of the launch"),
    Metric("gpulab__warps_at_barriers.sum", "warps", "exact",
           "warps that share the barriers of `gpulab__barriers.sum`: the square of their number, divided by the "
           "sum of the squares of each warp's number"),
    Metric("gpulab__sampling_error.pct", "%", "modelled",
           "standard error of counts scaled up from some of the blocks; 0 if all ran"),
    Metric("gpulab__ptx_thread_inst.sum", "instructions", "exact", "PTX instructions by threads, as written"),
    Metric("gpulab__data_additions.sum", "additions", "exact",
           "PTX additions, by threads, of two integers or half floats that come from memory or other threads; atomics, "
           "products of such integers and the additions of tensor cores count, too"),
    Metric("idc__requests.sum", "requests", "modelled",
           "loads from constant memory (parameters, too) by a warp, plus one per further address"),
    Metric("smsp__inst_executed.sum", "instructions", "modelled", "machine instructions issued, by warps"),
    Metric("smsp__thread_inst_executed.sum", "instructions", "modelled", "the same, by threads"),
    Metric("smsp__thread_inst_executed_pred_on.sum", "instructions", "modelled",
           "the same, without threads that are predicated off"),
    Metric("smsp__thread_inst_executed_per_inst_executed.ratio", "threads", "modelled",
           "threads per issued instruction, of 32"),
    Metric("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", "threads", "modelled",
           "the same, without threads that are predicated off"),
    Metric("smsp__inst_executed_op_shared_ld.sum", "instructions", "modelled",
           "load instructions on shared memory issued by warps, with all lanes predicated off, too"),
    Metric("smsp__inst_executed_op_shared_st.sum", "instructions", "modelled", "store instructions, likewise"),
    Metric("smsp__inst_executed_op_ldc.sum", "instructions", "modelled", "load instructions on constant memory"),
    Metric("smsp__inst_executed_pipe_alu.sum", "instructions", "modelled",
           "instructions of the integer units: sums, comparisons, selections, shifts, logic"),
    Metric("smsp__inst_executed_pipe_cbu.sum", "instructions", "modelled",
           "exits, jumps by tables, and instructions at which lanes of a warp part and meet"),
    Metric("smsp__inst_executed_pipe_xu.sum", "instructions", "modelled",
           "instructions of the special function units: roots, sines, divisions, conversions, bit counts"),
    Metric("smsp__sass_branch_targets.sum", "instructions", "modelled", "conditional branches by warps"),
    Metric("smsp__sass_branch_targets_threads_uniform.sum", "instructions", "modelled",
           "uniform branches: all lanes of the warp take the same path"),
    Metric("smsp__sass_branch_targets_threads_divergent.sum", "instructions", "modelled",
           "divergent branches: lanes of the warp take different paths"),
    *(Metric(_SUM.format(op), "instructions", "modelled", f"{what}-bit floats, by threads")
      for op, what in (("fadd", "additions of 32"), ("fmul", "multiplications of 32"),
                       ("ffma", "fused multiply-adds of 32"),
                       ("dadd", "additions of 64"), ("dfma", "fused multiply-adds of 64"))),
    Metric("gpulab__time_share.pct", "%", "estimated", "share of a source line in the launch's estimated time"),
    Metric("launch__registers_per_thread", "registers", "exact", "as the compiler reports them"),
    Metric("gpulab__local_bytes_per_thread", "bytes", "exact",
           "local memory per thread (arrays and spilled registers), as the compiler reports it"),
    Metric("sm__maximum_warps_per_active_cycle_pct", "%", "exact", "theoretical occupancy"),
)  # fmt: skip
"""All metrics, each name once, in the order of the documentation."""

_ISSUED = "smsp__inst_executed.sum"
_RATIOS = {
    "smsp__thread_inst_executed_per_inst_executed.ratio": "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": "smsp__thread_inst_executed_pred_on.sum",
}


def with_ratios(counters: Mapping[str, float]) -> dict[str, float]:
    """Return counters with the ratios derived from them; recompute the ratios after adding counters."""
    issued = counters.get(_ISSUED, 0.0)
    ratios = {name: counters.get(of, 0.0) / issued for name, of in _RATIOS.items()} if issued else {}
    return {**counters, **ratios}
