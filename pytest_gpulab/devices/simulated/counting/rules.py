"""Issued instructions by rules, for kernels without readable machine code.

Three rules predict the assembler's result from the PTX. They are documented in docs/counters.md:

- an opcode counts as its usual number of machine instructions (`translation.weights`);
- a branch over a short body without barrier, call or further branch becomes a guard: all lanes at the branch issue the
  body, and only those that do not jump execute it;
- every warp begins with two instructions that have no counterpart in PTX.

Requests to constant memory come from these two instructions, from pointer parameters and the block's extents, and from
loads of `__constant__` variables with different addresses per warp. Other constants are operands of other instructions.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Sym
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock
from pytest_gpulab.devices.simulated.translation.weights import PROLOGUE, weight

from .counters import Counters

SHORT_BODY = 7.0  # machine instructions, up to which the assembler guards a body
_FLOATS = {
    ("add", "f32"): "fadd", ("sub", "f32"): "fadd", ("mul", "f32"): "fmul", ("fma", "f32"): "ffma",
    ("add", "f64"): "dadd", ("sub", "f64"): "dadd", ("fma", "f64"): "dfma",
}  # fmt: skip
Figures = Mapping[str, float]
Amount = TypeVar("Amount", float, npt.NDArray[np.float64])


def figures_of(warps: Amount, threads: Amount, working: Amount) -> dict[str, Amount]:
    """Return the three figures of every issued instruction, by name."""
    return {
        "smsp__inst_executed.sum": warps,
        "smsp__thread_inst_executed.sum": threads,
        "smsp__thread_inst_executed_pred_on.sum": working,
    }


def by_rules(counters: Counters) -> Iterator[tuple[SourceLine | None, Figures]]:
    """Yield the figures of each statement, with its source line."""
    steps = counters.program.steps
    guards = _guards(steps)
    warps, lanes = counters.warps[0] * PROLOGUE, counters.lanes[0] * PROLOGUE
    constants = {"idc__requests.sum": counters.warps[0], "smsp__inst_executed_op_ldc.sum": counters.warps[0]}
    yield steps[0].where, {**figures_of(warps, lanes, lanes), **constants}
    yield from _scattered_constants(counters)
    for block, step in enumerate(steps):
        issuing = guards.get(block, block)
        for statement in step.statements:
            issue = weight(statement)
            jump = block in guards.values() and statement is step.statements[-1]
            if issue and not jump:
                warps, threads = counters.warps[issuing] * issue, counters.lanes[issuing] * issue
                figures = dict(figures_of(warps, threads, counters.lanes[block] * issue))
                yield statement.where, {**figures, **_special(statement, counters, block)}
        if step.end == "branch" and step.statements and block not in guards.values():
            yield step.statements[-1].where, _branch(counters.warps[block], counters.divergent[block])


def _guards(steps: list[TranslatedBlock]) -> dict[int, int]:
    """Return the blocks that become guarded instructions, each with the block that issues it."""
    entries: dict[int, int] = {}
    for step in steps:
        for target in step.targets:
            entries[target] = entries.get(target, 0) + 1
    guards: dict[int, int] = {}
    for block, step in enumerate(steps):
        if step.end != "branch":
            continue
        for body, join in (step.targets, step.targets[::-1]):
            inner = steps[body]
            ahead = body > block and inner.end == "goto" and inner.targets == (join,) and entries[body] == 1
            if ahead and _short(inner):
                guards[body] = guards.get(block, block)
    return guards


def _short(step: TranslatedBlock) -> bool:
    plain = all(isinstance(statement, Instruction) for statement in step.statements) and step.mask is None
    return plain and sum(map(weight, step.statements)) <= SHORT_BODY


def _special(statement: Instruction | Call, counters: Counters, block: int) -> Figures:
    if not isinstance(statement, Instruction):
        return {}
    op, lanes, warps = statement.op, counters.lanes[block], counters.warps[block]
    if op == ("ld", "param", "u64") or _reads_extent(statement):
        return {"idc__requests.sum": warps, "smsp__inst_executed_op_ldc.sum": warps}
    if op[0] in ("ld", "st") and "shared" in op[1:3]:
        return {f"smsp__inst_executed_op_shared_{op[0]}.sum": warps}
    if op[0] in ("div", "sqrt") and op[-1] == "f32" and "approx" not in op:
        return {"smsp__inst_executed_pipe_cbu.sum": 2 * warps, **_branch(warps, 0)}  # around the rare path
    if kind := _FLOATS.get((op[0], op[-1])):
        return {f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": lanes}
    return {}


def _reads_extent(statement: Instruction) -> bool:
    source = statement.operands[-1] if statement.op[0] == "mov" else None
    return isinstance(source, Sym) and source.name.startswith("%ntid")


def _scattered_constants(counters: Counters) -> Iterator[tuple[SourceLine | None, Figures]]:
    for (index, space), traffic in counters.traffic.items():
        if space == "const" and traffic.addresses > traffic.requests:
            figures = {"idc__requests.sum": traffic.addresses, "smsp__inst_executed_op_ldc.sum": traffic.requests}
            yield counters.program.sites[index].where, figures


def _branch(warps: int, divergent: int) -> Figures:
    return {
        "smsp__sass_branch_targets.sum": warps,
        "smsp__sass_branch_targets_threads_uniform.sum": warps - divergent,
        "smsp__sass_branch_targets_threads_divergent.sum": divergent,
    }
