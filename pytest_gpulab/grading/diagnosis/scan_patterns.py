"""Patterns in the wrong values of prefix sums: a carry that is wrong, and a step that is left out."""

from dataclasses import replace

import numpy as np

from .patterns import WARP, Pattern, WrongValue, units_of

NEARLY = 0.001  # relative, of sums in another order

SCAN_SHIFT = (
    "Usual cause: an index off by one, or inclusive and exclusive mixed up. Does the result of an element contain the "
    "element itself?"
)
CARRY = "Usual cause: the sum of the earlier {0}s is never added. Which thread writes it, which reads it, and when?"
OWN_UNIT = "Usual cause: the sum that a {0} adds already contains its own elements. Which elements belong in it?"
STEP = (
    "Usual cause: the last step is left out, or, with two buffers, the result of the step before it is taken. Which "
    "buffer does the last step write?"
)


NOT_CONSECUTIVE = (
    "Usual cause: a thread adds up elements that are no neighbours. Which consecutive ones should it take?"
)


BACKWARDS = (
    "Usual cause: the elements after it are added in place of those before it. From which side does each step take its "
    "value?"
)


def is_scan(output: WrongValue) -> bool:
    """Return True if each expected element is the sum of an input up to it, with or without its own element."""
    sums = output.expected.astype(np.float64)
    if sums.ndim != 1 or not np.isfinite(sums).all():
        return False
    parts, rounding = np.diff(sums, prepend=0), NEARLY * NEARLY * np.abs(sums).max()
    for values in (values.astype(np.float64) for values in output.like_output().values()):
        before = np.concatenate(([0], values[:-1]))
        if any(np.allclose(parts, own, NEARLY, rounding) for own in (values, before)):
            return True
    return False


def block_sums(output: WrongValue) -> Pattern | None:
    """Recognise a scan with a wrong carry from the blocks before, or from the threads or warps before in a block."""
    size = output.actual.size
    for unit, noun in units_of(output):
        within = size if noun == "block" else output.tile or size
        for name, values in output.like_output().items():
            of_unit = np.add.reduceat(values, np.arange(0, size, unit), dtype=values.dtype)
            before = np.cumsum(of_unit, dtype=values.dtype) - of_unit
            mine, first = output.at // unit, output.at // within * within // unit
            if output.is_explained_by(output.wanted - before[mine] + before[first]):
                what = f"lacks all elements of `{name}` in the {noun}s before its own"
                return Pattern(f"{output.them} {what}{' in its block' * (noun != 'block')}", CARRY.format(noun))
            if output.is_explained_by(output.wanted + of_unit[mine]):
                what = f"is the expected value plus the sum of its own {noun}'s part of `{name}`"
                return Pattern(f"{output.them} {what}", OWN_UNIT.format(noun))
    return None


def backwards(output: WrongValue) -> Pattern | None:
    """Recognise sums of the elements to the right, of a warp at least, whatever is added to them."""
    if output.actual.ndim != 1:
        return None
    has_left = np.arange(output.actual.size) % WARP > 0
    inner = replace(output, wrong=output.wrong & has_left & np.roll(output.wrong, 1))
    before = output.actual[inner.at - 1]
    for name, values in output.like_output().items() if inner.at.size > 2 else ():
        for own in (values[inner.at - 1], values[inner.at]):
            if inner.is_explained_by(before - own):
                what = f"each of them is its left neighbour minus an element of `{name}`, within {WARP} at least"
                return Pattern(what, BACKWARDS)
    return None


def step_left_out(output: WrongValue) -> Pattern | None:
    """Recognise a scan without the terms that lie 2, 4, 8, ... or more elements back in the block."""
    if output.actual.ndim != 1:
        return None
    tile = output.tile or output.actual.size
    position = output.at % tile
    begin, is_exclusive = output.at - position, int(output.expected[0] == 0)
    step = int(position.min()) - is_exclusive
    if step < 2 or step & (step - 1):
        return None
    for name, values in output.like_output().items():
        sums = np.concatenate((values[:1] * 0, np.cumsum(values, dtype=values.dtype)))
        if output.is_explained_by(output.wanted - sums[output.at + 1 - step - is_exclusive] + sums[begin]):
            what = f"lacks the elements of `{name}` that are {step} or more before it in its block"
            return Pattern(f"{output.them} {what}", STEP)
    return None


def strided_items(output: WrongValue) -> Pattern | None:
    """Recognise a scan in the order of threads that each take elements one block of threads apart."""
    threads, tile = output.context.block_threads, output.tile
    if not threads or not tile or tile % threads or tile == threads:
        return None
    for name, values in output.like_output().items():
        blocks = np.zeros((-(-values.size // tile), tile // threads, threads))
        blocks.reshape(-1)[: values.size] = values
        in_order = blocks.swapaxes(1, 2).reshape(-1)
        sums = np.cumsum(in_order) - (in_order if output.expected[0] == 0 else 0)
        found = sums.reshape(-1, threads, tile // threads).swapaxes(1, 2).reshape(-1)
        if output.is_explained_by(found[output.at]):
            order = f"thread by thread, each with elements of `{name}` that are {threads} apart"
            return Pattern(f"{output.them} is the sum in another order: {order}", NOT_CONSECUTIVE)
    return None
