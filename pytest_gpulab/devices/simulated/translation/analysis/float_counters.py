"""Loops that end only when a floating-point counter meets a bound.

Each sum is rounded: a counter in steps of 0.1 may pass 1 without meeting it, and a large one stays the same.
"""

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pytest_gpulab.devices.simulated.ptx.syntax import Imm, Instruction, Operand, Reg
from pytest_gpulab.devices.simulated.translation.control.graph import defined_and_used

MOST_ITERATIONS = 1 << 26  # that are computed
_AT_ONCE = 1 << 20
_TYPES = {"f32": (np.float32, "<I", "<f"), "f64": (np.float64, "<Q", "<d")}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "neu": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_NEGATED = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}  # also true for NaN
_Number = str | float
"""A register, or a constant."""


@dataclass(frozen=True)
class FloatCounter:
    """A loop that continues as long as a counter and a bound compare as stated."""

    takes_long: ClassVar[bool] = True  # as of `CountedLoop`
    counter: str
    step: _Number  # the number added per iteration
    bound: _Number
    comparison: str  # a comparison of PTX, for which NaN is as for `_COMPARE`
    goes_on: bool  # the result of the comparison with which the loop continues
    kind: str  # `f32` or `f64`
    adds_first: bool  # True if the sum is compared, False if the value before it
    moves_on: bool  # as of `CountedLoop`
    instructions: int  # as of `CountedLoop`

    @property
    def registers(self) -> set[str]:
        """The registers that decide on the number of iterations."""
        return {name for name in (self.counter, self.step, self.bound) if isinstance(name, str)}

    def iterations_left(self, values: Mapping[str, float]) -> float:
        """Return the iterations that a thread with these registers has left, at most `MOST_ITERATIONS`, or infinity."""
        of = _TYPES[self.kind][0]
        numbers = (self.counter, self.step, self.bound)
        counter, step, bound = (of(values[number] if isinstance(number, str) else number) for number in numbers)
        done, count = 0, 1 << 10
        while done < MOST_ITERATIONS:
            # the sums one after another, each rounded
            sums = np.add.accumulate(np.concatenate([[counter], np.full(count, step)]), dtype=of)
            compared = sums[1:] if self.adds_first else sums[:-1]
            ends = np.flatnonzero(_COMPARE[self.comparison](compared, bound) != self.goes_on)
            if len(ends):
                return done + int(ends[0])
            if sums[-1].tobytes() == sums[-2].tobytes():
                return math.inf
            counter, done, count = sums[-1], done + count, min(2 * count, _AT_ONCE)
        return MOST_ITERATIONS


def float_counter(
    once: Sequence[Instruction], others: Sequence[Instruction], jump: int, goes_on: bool, moves_on: bool
) -> FloatCounter | None:
    """Return a loop with its counter, if it has one.

    Each iteration executes the instructions `once` in order, one of which is the `jump` out of the loop; the loop
    continues where that is taken if `goes_on`. `others` are its other instructions. For `moves_on` see `CountedLoop`.
    """
    changes: dict[str, list[int]] = {}
    for at, instruction in enumerate((*once, *others)):
        for name in defined_and_used(instruction, {})[0]:
            changes.setdefault(name, []).append(at)

    def change(operand: Operand) -> int:
        """Return the position of the only instruction that changes a register, if it is in `once`; else the end."""
        at = changes.get(operand.name, []) if type(operand) is Reg else []
        return at[0] if len(at) == 1 and at[0] < len(once) else len(once)

    guard = once[jump].guard
    tested = len(once) if guard is None else change(guard[0])
    if guard is None or tested >= jump or once[tested].op[0] != "setp" or len(once[tested].op) != 3:
        return None
    (_, word, kind), (_, counter, bound, *_) = once[tested].op, once[tested].operands
    added = change(counter)
    if kind not in _TYPES or added == len(once) or once[added].op not in (("add", kind), ("add", "rn", kind)):
        return None
    terms = [operand for operand in once[added].operands[1:] if operand != counter]
    step, limit = _number(terms[0], changes) if len(terms) == 1 else None, _number(bound, changes)
    comparison = word if word in _COMPARE else _NEGATED.get(word)
    if step is None or limit is None or comparison is None or type(counter) is not Reg:
        return None
    result = goes_on ^ guard[1] ^ (comparison != word)
    return FloatCounter(counter.name, step, limit, comparison, result, kind, added < tested, moves_on, len(once))


def _number(operand: Operand, changes: Mapping[str, object]) -> _Number | None:
    """Return an operand that stays the same in the loop; None for others."""
    if type(operand) is Reg:
        return None if operand.name in changes else operand.name
    if type(operand) is not Imm or not operand.bits:
        return None
    _, whole, real = _TYPES[f"f{operand.bits}"]
    return float(struct.unpack(real, struct.pack(whole, operand.value))[0])
