"""Loops that end only when a counter meets a bound: the number of iterations that are left is known.

Such a loop has one exit: a comparison of two integers, each of which changes by the same number in each iteration.
Integers are taken as sums of registers, so the counter may be computed from another one. They wrap around as on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pytest_gpulab.devices.simulated.ptx.syntax import Address, Call, Imm, Instruction, Operand, Reg
from pytest_gpulab.devices.simulated.translation.control.graph import defined_and_used

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

    from .float_counters import FloatCounter

Sum = Mapping[str, int]
"""Factors of registers, with their values at the start of an iteration; the constant has the key `CONSTANT`."""
Compared = tuple[Sum | None, str]
"""A compared number and its type before it was widened; "" if it was not."""
Test = tuple[str, str, Compared, Compared]
"""The comparison, type and operands of a `setp`."""
CONSTANT = ""
_FAR = 1 << 128  # more than the difference of any two numbers
MAX_BLOCKS = 256  # of a loop; the analysis compares all of its jumps with all of its blocks
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # other names of comparisons of unsigned numbers
_WIDENING = {("cvt", f"{sign}64", f"{sign}32") for sign in "us"}
_LINEAR = {"add", "sub", "mul", "mad", "shl", "neg", "mov", "cvt", "cvta"}  # their result grows with their operands


@dataclass(frozen=True)
class CountedLoop:
    """A loop that continues while `counter` and `bound` compare as stated."""

    takes_long: ClassVar[bool] = False  # True if `iterations_left` takes long for many of them
    counter: Sum  # the compared number in the next iteration
    step: Sum  # its change per iteration
    bound: Sum  # its bound
    comparison: str  # `eq`, `ne`, `lt`, `le`, `gt` or `ge`
    signed: bool  # of the comparison and of the bound
    bits: int  # of the comparison and of the bound
    counter_signed: bool  # of the counter, which may be widened for the comparison
    counter_bits: int  # of the counter
    # True if it accesses memory at addresses that may grow with the counter, beyond the end of any array
    moves_on: bool
    instructions: int = 0  # the least number of instructions that each iteration executes
    bound_step: Sum = field(default_factory=dict)  # the bound's change per iteration

    @property
    def registers(self) -> set[str]:
        """The registers that decide on the number of iterations."""
        return {*self.counter, *self.step, *self.bound, *self.bound_step} - {CONSTANT}

    def iterations_left(self, values: Mapping[str, int]) -> float:
        """Return the least iterations that a thread with these unsigned registers has left; infinity without an end."""
        bits, signed = self.counter_bits, self.counter_signed
        counter, step = _number(self.counter, values, bits, signed), _number(self.step, values, bits, signed=True)
        bound_step = _number(self.bound_step, values, bits, signed=True)
        low, high = _range(bits, signed)
        if self.comparison == "ne":
            # a counter that is widened by its sign also has the sign in the comparison
            bound = _number(self.bound, values, self.bits, signed)
            return _meeting(bound - counter, step - bound_step, bits) if low <= bound <= high else math.inf
        bound = _number(self.bound, values, self.bits, self.signed)
        low = low if self.signed else 0  # a negative number that is compared as an unsigned one is large
        if bound_step == 0:
            return self._within(counter, step, bound, low, high)
        until_wrapped = min(_steps_within(counter, step, low, high), _steps_within(bound, bound_step, low, high))
        return min(until_wrapped, self._within(counter - bound, step - bound_step, 0, -_FAR, _FAR))

    def _within(self, counter: int, step: int, bound: int, low: int, high: int) -> float:
        """Return the iterations until the comparison is false, or the counter leaves a range."""
        first = {"gt": bound + 1, "ge": bound, "eq": bound}.get(self.comparison, low)
        last = {"lt": bound - 1, "le": bound, "eq": bound}.get(self.comparison, high)
        return _steps_within(counter, step, max(first, low), min(last, high))


def _steps_within(number: int, step: int, first: int, last: int) -> float:
    """Return how many steps a number takes to leave a range."""
    if not first <= number <= last:
        return 0
    if step == 0:
        return math.inf
    return (last - number) // step + 1 if step > 0 else (number - first) // -step + 1


def _number(total: Sum, values: Mapping[str, int], bits: int, signed: bool) -> int:
    number = sum(factor * values.get(name, 1) for name, factor in total.items()) % (1 << bits)
    return number - (1 << bits) if signed and number >> bits - 1 else number


def _range(bits: int, signed: bool) -> tuple[int, int]:
    return (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _meeting(distance: int, step: int, bits: int) -> float:
    """Return how many steps make up a distance, modulo a power of two."""
    distance, step = distance % (1 << bits), step % (1 << bits)
    common = math.gcd(step, 1 << bits)
    if distance % common:
        return math.inf
    modulus = (1 << bits) // common
    return distance // common * pow(step // common, -1, modulus) % modulus


def counted_loop(steps: Sequence[TranslatedBlock], start: int) -> CountedLoop | FloatCounter | None:
    """Return the outermost loop that begins at a basic block, if it ends only when a counter meets a bound."""
    end = max((i for i, step in enumerate(steps) if i >= start and start in step.targets), default=-1)
    loop = range(start, end + 1)
    if len(loop) > MAX_BLOCKS:
        return None
    leaving = [i for i in loop if not steps[i].targets or any(target not in loop for target in steps[i].targets)]
    once = _executed_once(steps, loop)
    if len(leaving) != 1 or leaving[0] not in once or steps[leaving[0]].end != "branch":  # at least 1 target is inside
        return None
    iteration = _Iteration(steps, loop, once, leaving[0])
    return iteration.counted() or iteration.float_counter()


def _executed_once(steps: Sequence[TranslatedBlock], loop: range) -> frozenset[int]:
    """Return the basic blocks that each complete iteration of a loop executes exactly once."""
    jumps = [(i, target) for i in loop for target in steps[i].targets if target in loop]
    skipped = {b for i, target in jumps for b in range(i + 1, loop.stop if target == loop.start else target)}
    repeated = {b for i, target in jumps if loop.start < target <= i for b in range(target, i + 1)}
    return frozenset(loop) - skipped - repeated


class _Iteration:
    """One iteration of a loop, executed with sums of registers."""

    def __init__(self, steps: Sequence[TranslatedBlock], loop: range, once: frozenset[int], exit_block: int) -> None:
        self._tests: dict[str, Test] = {}
        self._widened: dict[str, Compared] = {}
        self._values: dict[str, Sum | None] = {}  # of the registers that the loop changes; None if unknown
        self._exit, self._loop = steps[exit_block], loop
        self._at_exit: Test | None = None
        self._once: list[Instruction] = []  # the instructions that each iteration executes once
        self._others: list[Instruction] = []
        for i in loop:
            for statement in steps[i].statements:
                if isinstance(statement, Call):  # of a driver function, such as `vprintf`
                    self._values.update((f"{result}+0", None) for result in statement.results)
                    continue
                self._execute(statement, is_known=i in once)
                (self._once if i in once else self._others).append(statement)
            if i == exit_block:
                guard = steps[i].statements[-1].guard
                self._at_exit = self._tests.get(guard[0].name) if guard is not None else None

    def _execute(self, statement: Instruction, is_known: bool) -> None:
        written, _ = defined_and_used(statement, {})
        has_one = is_known and len(written) == 1
        operands = [self._sum(operand) for operand in statement.operands[1:]]
        compared = [self._compared(operand) for operand in statement.operands[1:]]
        for name in written:
            self._values[name] = _result(statement, operands) if has_one else None
            self._tests.pop(name, None)
            self._widened.pop(name, None)
        if has_one and _is_comparison(statement) and len(compared) == 2:
            self._tests[written[0]] = statement.op[1], statement.op[2], compared[0], compared[1]
        if has_one and statement.op in _WIDENING:
            self._widened[written[0]] = operands[0], statement.op[2]

    def _sum(self, operand: Operand) -> Sum | None:
        if type(operand) is Reg:
            return self._values.get(operand.name, {operand.name: 1})
        return {CONSTANT: operand.value} if type(operand) is Imm and not operand.bits else None

    def _compared(self, operand: Operand) -> Compared:
        """Return an operand as a sum, with its type before it was widened, if it was."""
        return (type(operand) is Reg and self._widened.get(operand.name)) or (self._sum(operand), "")

    def counted(self) -> CountedLoop | None:
        """Return the loop, if a comparison of a counter with a bound decides whether it ends."""
        if self._at_exit is None:
            return None
        word, kind, one, other = self._at_exit
        comparison = _UNSIGNED.get(word, word)
        if self._change(other[0]):
            one, other, comparison = other, one, _SWAPPED[comparison]
        (counter, its_kind), (bound, other_kind) = one, other
        step, bound_step = self._change(counter), self._change(bound)
        if counter is None or bound is None or step is None or bound_step is None or other_kind:
            return None
        if bound_step and its_kind:
            return None
        if self._exit.targets[0] not in self._loop:
            comparison = _OPPOSITE[comparison]
        signed, bits = kind[0] == "s" and word not in _UNSIGNED, int(kind[1:])
        narrow = (its_kind[0] == "s", int(its_kind[1:])) if its_kind else (signed, bits)
        kinds = (signed, bits, *narrow)
        return CountedLoop(counter, step, bound, comparison, *kinds, self._moves_on(), len(self._once), bound_step)

    def float_counter(self) -> FloatCounter | None:
        """Return the loop, if the comparison of a floating-point counter decides whether it ends."""
        from .float_counters import float_counter

        jump = next(at for at, each in enumerate(self._once) if each is self._exit.statements[-1])
        return float_counter(self._once, self._others, jump, self._exit.targets[0] in self._loop, self._moves_on())

    def _change(self, total: Sum | None) -> Sum | None:
        """Return the change of a sum per iteration, if it is a sum of registers that the loop does not change."""
        change: Sum = {}
        for name, factor in (total or {}).items():
            if name in self._values:
                after = self._values[name]
                if after is None:
                    return None
                change = _plus(change, _plus(after, {name: 1}, -1), factor)
        return None if total is None or any(name in self._values for name in change) else change

    def _moves_on(self) -> bool:
        """Return whether the address of a memory access may grow with each iteration."""
        growing = {name for name in self._values if self._change({name: 1})}
        statements = (*self._once, *self._others)
        for statement in statements:
            written, used = defined_and_used(statement, {})
            if not growing.isdisjoint(used) and statement.op[0] in _LINEAR:
                growing.update(written)
        bases = (operand.base for s in statements for operand in s.operands if type(operand) is Address)
        return any(type(base) is Reg and base.name in growing for base in bases)


def _is_comparison(statement: Instruction) -> bool:
    """Return whether an instruction compares two integers, and nothing else."""
    op = statement.op
    return op[0] == "setp" and len(op) == 3 and _UNSIGNED.get(op[1], op[1]) in _OPPOSITE and _is_integer(op[2])


def _is_integer(kind: str) -> bool:
    return kind[0] in "sub"


def _result(statement: Instruction, operands: Sequence[Sum | None]) -> Sum | None:
    """Return the result of an instruction as a sum, if it is one."""
    name = statement.op[0]
    known = [operand for operand in operands if operand is not None]
    if len(statement.op) != 2 or not _is_integer(statement.op[1]) or len(known) != len(operands):
        return None
    if name in ("add", "sub") and len(known) == 2:
        return _plus(known[0], known[1], 1 if name == "add" else -1)
    if name == "neg":
        return _plus({}, known[0], -1)
    return known[0] if name == "mov" else None


def _plus(one: Sum, other: Sum, factor: int = 1) -> Sum:
    """Return one sum plus another one times a factor."""
    names = {*one, *other}
    total = {name: one.get(name, 0) + factor * other.get(name, 0) for name in names}
    return {name: number for name, number in total.items() if number}
