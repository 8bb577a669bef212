"""Which elements a single result leaves out or counts twice: the last one, the last block, all but the first warp.

A reduction's only output shows no place where it is wrong. But its operation can be told from the expected value, so
that the same operation on a part of the input says whether the result is exactly that of this part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from .coincidence import TINY, is_likely, value_bits
from .error_location import (
    FIRST_BLOCK,
    FIRST_ONE,
    IN_EACH_BLOCK,
    LAST_ONE,
    OTHER_WARPS,
    STRIDED,
    TAIL,
    WARP,
    place_of,
)
from .patterns import Array, Pattern, WrongValue
from .value_patterns import number

OPERATIONS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "largest": np.maximum,
    "smallest": np.minimum,
}
TRIED_OTHERS, TRIED_PARTS = 6, 16  # other results, and parts of an input: each an attempt to explain the result
NEAR = 1e-3  # relative; tolerances of another operation's results are other ones
MAX_ELEMENTS = 1 << 22  # beyond, it would take longer than all else
OTHER_OPERATION = "Usual cause: another operation, or a start value that wins over every element."
ONE_ELEMENT = "Usual cause: the results of the others are never combined with it, or too early or too late to count."
NO_OTHER_BLOCK = "Usual cause: the other blocks' results are never combined, or their elements are never read."
LAST_BLOCK_LOST = "Usual cause: a bounds check or a loop that takes only whole blocks. Who takes care of the last one?"
FOREIGN = (
    "Usual cause: a value takes part that is not of the input: a start value, what stands in for elements beyond the "
    "end, or memory that nobody has set."
)
WRAPS = "Usual cause: a partial result of another type, which does not wrap around: float, double, or a wider integer."
COUNTED_TWICE = "Usual cause: two threads take the same element. Which indices does each thread read, at this length?"


@dataclass(frozen=True)
class Part:
    """Some of the elements of an input, in words, with the usual cause of leaving them out."""

    elements: Array
    words: str
    cause: str


def missing_terms_of(mistake: WrongValue) -> Pattern | None:
    """Return what a single wrong result leaves out, counts twice or is instead; None where that is not certain."""
    inputs = [(name, values) for name, values in mistake.around.inputs.items() if values.size > 1]
    if mistake.actual.size != 1 or len(inputs) != 1 or not TINY < inputs[0][1].size <= MAX_ELEMENTS:
        return None
    name, values = inputs[0]
    values = values.reshape(-1)
    if values.dtype.kind not in "iuf" or not np.isfinite(mistake.got).all():
        return None
    bits = _bits(mistake, values)
    others = () if is_likely(bits, TRIED_OTHERS) else (_something_else,)
    parts = () if is_likely(bits, TRIED_PARTS) else (_part_left_out,)
    ways = (_few_different, *others, *parts, _foreign, _wraps_around)
    found = next((pattern for way in ways if (pattern := way(mistake, name, values))), None)
    return replace(found, bits=bits) if found and found.cause else found


def _bits(mistake: WrongValue, values: Array) -> float:
    """Return how much it says that a result is exactly that of some of the elements.

    Other sums might be anything up to the sum of the magnitudes; a largest or smallest one is one of the elements.
    """
    if _is_expected(mistake, np.add, values):
        return value_bits(mistake, spread=2 * float(np.abs(values.astype(np.float64)).sum()))
    is_choice = any(_is_expected(mistake, operation, values) for operation in (np.maximum, np.minimum))
    return log2(np.unique(values).size) if is_choice else value_bits(mistake)


def _few_different(mistake: WrongValue, name: str, values: Array) -> Pattern | None:
    """Of equal elements count those that were added up; of one among zeros tell that it is lost."""
    if not _is_expected(mistake, np.add, values):
        return None
    first = values[0].astype(mistake.wanted.dtype)
    if first != 0 and (values == values[0]).all():
        count = int(np.rint(float(mistake.got[0]) / float(first)))
        if 0 < count != values.size and mistake.is_explained_by(np.array([count], first.dtype) * first):
            return Pattern(
                f"all elements of `{name}` are equal, and it is the sum of {count} of them, not {values.size}"
            )
    if np.count_nonzero(values) == 1 and mistake.got[0] == 0:
        mask = values != 0
        place = place_of(mask, mistake.around.tiling(name, values, first=True))
        what = f"it misses the only element of `{name}` that is not 0, at index {np.flatnonzero(mask)[0]}"
        return Pattern(what, place.cause if place else "", telling=bool(place))
    return None


def _something_else(mistake: WrongValue, name: str, values: Array) -> Pattern | None:
    if np.ptp(values) == 0 or mistake.got[0] == 0:  # zero is more than one thing
        return None
    for words, operation in OPERATIONS.items():
        if not _is_expected(mistake, operation, values) and _is(mistake, operation, values):
            what = f"the {words} of `{name}`" if words in ("sum", "product") else f"the {words} element of `{name}`"
            return Pattern(f"it is {what}", OTHER_OPERATION)
    for index, which in ((0, "first"), (-1, "last")):
        if (values == values[index]).sum() == 1 and mistake.is_explained_by(
            values[index : index + 1 or None].astype(mistake.wanted.dtype)
        ):
            return Pattern(f"it is the {which} element of `{name}`", ONE_ELEMENT)
    return None


def _part_left_out(mistake: WrongValue, name: str, values: Array) -> Pattern | None:
    """Try every part that a common mistake leaves out; where two of different elements fit, nothing is certain."""
    if mistake.got[0] == 0:
        return None
    tile = mistake.around.tiling(name, values, first=True)[0]
    fitting: list[tuple[Part, Pattern]] = []
    for operation in (np.add, np.multiply):  # without almost any part, the largest element left is the second one
        if not _is_expected(mistake, operation, values):
            continue
        for part in _parts(values.size, tile, mistake.around.block_threads):
            if _is(mistake, operation, values[~part.elements]):
                fitting.append((part, Pattern(f"it is what comes out of `{name}` without {part.words}", part.cause)))
            elif operation is np.add and _is(mistake, operation, values, values[part.elements]):
                what = f"it is what comes out of `{name}` with {part.words} counted twice"
                fitting.append((part, Pattern(what, COUNTED_TWICE)))
    if not fitting:
        return None
    part, pattern = min(fitting, key=lambda fit: fit[0].elements.sum())
    is_certain = all((other.elements & part.elements).sum() == part.elements.sum() for other, _ in fitting)
    return pattern if is_certain else None


def _foreign(mistake: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise a maximum or minimum that is none of the elements, and no start value that won either."""
    got, kind = mistake.got[0], values.dtype
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    is_choice = any(_is_expected(mistake, operation, values) for operation in (np.maximum, np.minimum))
    if not is_choice or got in (limits.min, limits.max) or (values == got).any():
        return None
    return Pattern(f"it is {number(got)}, which is no element of `{name}`", FOREIGN)


def _wraps_around(mistake: WrongValue, name: str, values: Array) -> Pattern | None:
    """Say that sums on the way leave the range of the result's type: not every type wraps around as an integer does."""
    if not mistake.is_exact or not _is_expected(mistake, np.add, values):
        return None
    limits = np.iinfo(mistake.actual.dtype)
    sums = np.cumsum(values, dtype=np.float64)
    if limits.min <= sums.min() and sums.max() <= limits.max:
        return None
    return Pattern(f"sums on the way leave the range of {mistake.actual.dtype}, and must wrap around", WRAPS)


def _is_expected(mistake: WrongValue, operation: Any, values: Array) -> bool:
    with np.errstate(all="ignore"):
        result = operation.reduce(values, dtype=mistake.wanted.dtype).item()
    return bool(abs(result - mistake.wanted[0].item()) <= mistake.allowed[0])  # Python's integers do not wrap around


def _is(mistake: WrongValue, operation: Any, *parts: Array) -> bool:
    """Return whether the result is that of these elements; none have no result, and twice all is not a part twice."""
    kind = mistake.wanted.dtype
    values = np.concatenate(parts)
    if values.size == 0 or (len(parts) > 1 and parts[1].size == parts[0].size):
        return False
    with np.errstate(all="ignore"):
        result = operation.reduce(values, dtype=kind)
        is_near = mistake.is_exact or np.abs(mistake.got[0] - result) <= NEAR * np.abs(result)
    return bool(is_near) and mistake.is_explained_by(result[None])


def _parts(size: int, tile: int | None, threads: int | None) -> Iterator[Part]:
    """Yield what a reduction may leave out: ends, rests of blocks and warps, the same positions of every block."""
    index = np.arange(size)
    yield Part(index == size - 1, f"the last element (index {size - 1})", LAST_ONE)
    yield Part(index == 0, "the first element", FIRST_ONE)
    blocks = -(-size // tile) if tile else 1
    if tile and blocks > 1:
        start = (blocks - 1) * tile
        yield Part(
            index >= start, f"the last block's elements (block {blocks - 1}, {start} to {size - 1})", LAST_BLOCK_LOST
        )
        yield Part(index < tile, f"the first block's elements (0 to {tile - 1})", FIRST_BLOCK)
        yield Part(index >= tile, f"all elements but the first block's ({tile} to {size - 1})", NO_OTHER_BLOCK)
    for unit in (2, 4, 8, 16, WARP, threads or WARP):
        rest = size % unit
        if rest > 1:
            yield Part(index >= size - rest, f"the last {rest} elements (from index {size - rest} on)", TAIL)
    position = index % (tile or size)
    if threads and threads > WARP:
        yield Part(position % threads >= WARP, "what all warps but the first of each block take", OTHER_WARPS)
        yield Part(position >= threads, "what each thread takes after its first element", IN_EACH_BLOCK)
    if tile and tile > 1:
        yield Part(position >= tile // 2, "the second half of every block's elements", IN_EACH_BLOCK)
    yield Part(index % 2 == 1, "the elements with an odd index", STRIDED)
    yield Part(index % 2 == 0, "the elements with an even index", STRIDED)
