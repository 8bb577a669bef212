"""Loops that update a value by compare-and-swap: `do { seen = *p; } while (atomicCAS(p, seen, f(seen)) != seen);`.

If all lanes of a group try together, one per address succeeds, and n lanes at one address need n iterations. It is as
correct if each lane executes a whole iteration in its turn: then each finds the value of the lane before it, and all
succeed at once. So the swap of such a loop is executed as an atomic operation with f.
"""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from pytest_gpulab.devices.simulated.ptx.syntax import Address, Instruction, Label, Reg
from pytest_gpulab.devices.simulated.translation.control.graph import Block, defined_and_used

_PURE = {
    "abs", "add", "and", "bfe", "bfi", "cvt", "div", "fma", "lop3", "mad", "max", "min", "mov", "mul", "neg", "not",
    "or", "prmt", "rem", "selp", "setp", "shf", "shl", "shr", "sub", "xor",
}  # fmt: skip


@dataclass(frozen=True)
class Retry:
    """A compare-and-swap that such a loop repeats."""

    expected: Reg  # the register with the value that the swap expects
    steps: tuple[Instruction, ...]  # the instructions that compute the new value from it, in order
    given: tuple[str, ...]  # the other registers that they read


def retries(blocks: Sequence[Block], guesses: Set[int]) -> dict[int, Retry]:
    """Return the compare-and-swaps, by number, of loops that do nothing but update the value at one address.

    `guesses` are the loads of values that a swap at the same address expects, by number.
    """
    found = {}
    for number, block in enumerate(blocks):
        if block.end == "branch" and number in block.targets:
            body = [each for each in block.body if not isinstance(each, Label)]
            swaps = [at for at, each in enumerate(body) if isinstance(each, Instruction) and "cas" in each.op]
            steps = [each for each in body if isinstance(each, Instruction) and each.guard is None]
            if len(swaps) == 1 and len(steps) == len(body):
                retry = _retry(steps[: swaps[0]], steps[swaps[0]], steps[swaps[0] + 1 :], guesses)
                if retry is not None and _repeats_if_different(block, number, retry.expected, steps[swaps[0] :]):
                    found[steps[swaps[0]].number] = retry
    return found


def _retry(
    before: Sequence[Instruction], swap: Instruction, after: Sequence[Instruction], guesses: Set[int]
) -> Retry | None:
    """Return the update of an iteration: statements, a swap, statements; None if it is not certain to be one."""
    if swap.op[0] != "atom" or len(swap.operands) != 4:
        return None
    result, address, expected, new = swap.operands
    if not (isinstance(result, Reg) and isinstance(address, Address) and isinstance(expected, Reg)):
        return None
    if any(each.op[0] not in _PURE and each.op[0] != "ld" for each in before) or any(
        each.op[0] not in _PURE for each in after
    ):
        return None
    makers = [at for at, each in enumerate(before) if expected.name in defined_and_used(each, {})[0]]
    start = makers[0] + 1 if makers else 0
    steps, made, given = [], {expected.name}, dict[str, None]()
    for step in before[start:]:
        targets, read = defined_and_used(step, {})
        if not made.isdisjoint(read):
            steps.append(step)
            given.update(dict.fromkeys(name for name in read if name not in made))
            made.update(targets)
    loads = [step for step in steps if step.op[0] == "ld"]
    if loads or not isinstance(new, Reg) or new.name not in made or getattr(address.base, "name", "") in made:
        return None
    source = before[makers[0]] if makers else None
    is_seen = _passes_on_what_it_found(source, before, swap, after, guesses)
    return Retry(expected, tuple(steps), tuple(given)) if is_seen else None


def _passes_on_what_it_found(
    source: Instruction | None,
    before: Sequence[Instruction],
    swap: Instruction,
    after: Sequence[Instruction],
    guesses: Set[int],
) -> bool:
    """Return whether only what the swap found passes to the next iteration.

    The swap must expect it, or a new guess; `source` makes the expected value in this iteration, if anything does.
    """
    written, carried = Counter[str](), set[str]()
    for step in (*before, swap, *after):
        targets, read = defined_and_used(step, {})
        carried.update(name for name in read if not written[name])
        written.update(targets)
    carried.intersection_update(written)
    found = {getattr(swap.operands[0], "name", "")}
    for step in after:
        if _copied(step) in found:
            found.update(defined_and_used(step, {})[0])
    if max(written.values()) > 1 or not carried <= found:
        return False
    if source is None:
        return getattr(swap.operands[2], "name", "") in carried
    return source.number in guesses or _copied(source) in carried


def _copied(step: Instruction) -> str | None:
    """Return the register that a statement copies, if it does."""
    source = step.operands[1] if step.op[0] == "mov" and len(step.operands) == 2 else None
    return source.name if isinstance(source, Reg) else None


def _repeats_if_different(loop: Block, number: int, expected: Reg, rest: Sequence[Instruction]) -> bool:
    """Return whether a loop ends if its swap has found the expected value; `rest` is the swap and what follows."""
    if loop.last is None or loop.last.guard is None:
        return False
    register, is_negated = loop.last.guard
    compares = "ne" if (loop.targets[0] == number) != is_negated else "eq"
    for step in rest[1:]:
        targets, read = defined_and_used(step, {})
        if register.name in targets:
            is_whole = step.op[-1][0] in "usb"
            both = {expected.name, *defined_and_used(rest[0], {})[0]}
            return step.op[:2] == ("setp", compares) and is_whole and len(step.operands) == 3 and {*read} == both
        if expected.name in targets:
            return False
    return False
