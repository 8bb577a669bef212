"""Terms that a reduction leaves out or counts twice: the last one, the last block, all but the first warp.

A single result has no positions to examine. But the expected value reveals the operation (a sum, a maximum). Applied
to a part of the input, the operation shows whether the result is exactly that of the part.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.plans.index_factors import MAX_TAKEN, TRIED_INDEXES, IndexFactors, index_factors

from . import causes
from .coincidence import TINY, is_likely, value_bits
from .error_location import place_of
from .patterns import WARP, Pattern, RunContext, WrongValue, number
from .value_patterns import FRACTION

OPERATIONS: dict[str, Any] = {"sum": np.add, "product": np.multiply, "largest": np.maximum, "smallest": np.minimum}
TRIED_COUNTS, TRIED_OTHERS, TRIED_PARTS = 2, 6, 24  # other results, and parts of an input, each a try
SMALL_INDEXES = (np.int16, np.uint16, np.int8, np.uint8)
MAX_ELEMENTS = 1 << 22  # a search among more would take longer than the rest of the check
OTHER_OPERATION = "Usual cause: another operation, or a start value beyond every element."
SAME_ELEMENT = "Usual cause: all threads of a block read the same element. Does the index contain threadIdx?"
ONE_ELEMENT = "Usual cause: the results of the others are never combined with it, or too early or too late to count."
NO_OTHER_BLOCK = "Usual cause: the other blocks' results are never combined, or their elements are never read."
LAST_BLOCK_LOST = "Usual cause: a bounds check or a loop that takes only whole blocks. Which threads take the last one?"
FOREIGN = (
    "Usual cause: a value that is not from the input: a start value, a substitute for elements beyond the "
    "end, or memory that no thread has set."
)
FOREIGN_OPERATION = (
    "Usual cause: another operation in one place, such as a + where the exercise's operation belongs, or memory that "
    "no thread has set."
)
INFINITE = "Usual cause: another operation in one place, such as a +, or a type with too small a range."
WRAPS = "Usual cause: a partial result of another type, which does not wrap around: float, double, or a wider integer."
SIZEOF = (
    "Usual cause: `sizeof` of a pointer, which is 8 bytes for any number of elements. Which variable holds the length?"
)
FAR_APART = (
    "Usual cause: the threads' elements are too far apart. Which elements do threads 0 and 1 take, and which thread "
    "takes those in between?"
)
INDEX = "Usual cause: an index of a smaller type, such as `short`. What type has each part of it?"
SAME_ITEM = "Usual cause: an index in which the number of the thread's item, or of the block, is missing."
FACTORS = (
    "Usual cause: a wrong factor in an index. How far apart are neighbouring threads, the items of a thread, and "
    "blocks, and how far apart should each of them be?"
)
REPLACED = "Usual cause: a partial result that is replaced in each round of a loop, where the element should be added."
COUNTED = "Usual cause: 1 is added for each element. Which value should be added?"
COUNTED_TWICE = (
    "Usual cause: two threads, or a start value and a loop, take the same element. Which indices does each thread "
    "read, at this length?"
)


@dataclass(frozen=True)
class Terms:
    """Some elements of an input: a mask, words for them, and the usual cause if they are missing."""

    elements: Array
    words: str
    cause: str


def missing_terms_of(output: WrongValue) -> Pattern | None:
    """Return the pattern in a single wrong result; None if it is not certain."""
    inputs = [(name, values) for name, values in output.context.inputs.items() if values.size > 1]
    if output.actual.size != 1 or len(inputs) != 1 or not TINY < inputs[0][1].size <= MAX_ELEMENTS:
        return None
    name, values = inputs[0]
    values = values.reshape(-1)
    if values.dtype.kind not in "iuf" or np.isnan(output.got).any():
        return None
    if np.isinf(output.got).any():
        return _foreign(output, name, values)
    bits = _bits(output, values)
    counts = () if is_likely(bits, TRIED_COUNTS) else (_counted,)
    others = () if is_likely(bits, TRIED_OTHERS) else (_something_else,)
    parts = () if is_likely(bits, TRIED_PARTS) else (_part_left_out, _small_index)
    same = () if is_likely(bits, TRIED_PARTS) else (_of_one_value,)
    indexes = () if is_likely(bits, TRIED_INDEXES) else (_index_factors,)
    ways = (_few_different, *counts, *others, *indexes, *parts, _foreign, _wraps_around, *same)
    found = next((pattern for way in ways if (pattern := way(output, name, values))), None)
    return replace(found, bits=bits) if found and found.cause else found


def _bits(output: WrongValue, values: Array) -> float:
    """Return the information, in bits, of a result that is exactly that of some elements.

    Other sums may be any number up to the sum of the magnitudes.
    """
    if _is_expected(output, np.add, values):
        return value_bits(output, spread=2 * float(np.abs(values.astype(np.float64)).sum()))
    return value_bits(output)


def _few_different(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise a sum of too few or too many equal elements, and one that misses the only element that is not 0."""
    if not _is_expected(output, np.add, values):
        return None
    first = values[0].astype(output.wanted.dtype)
    if first != 0 and (values == values[0]).all():
        count = int(np.rint(float(output.got[0]) / float(first)))
        if 0 < count != values.size and output.is_explained_by(np.array([count], first.dtype) * first):
            return Pattern(
                f"all elements of `{name}` are equal, and it is the sum of {count} of them, not {values.size}"
            )
    if np.count_nonzero(values) == 1 and output.got[0] == 0:
        mask = values != 0
        place = place_of(mask, (_tile(output, name, values),))
        what = f"it misses the only element of `{name}` that is not 0, at index {np.flatnonzero(mask)[0]}"
        return Pattern(what, place.cause if place else "", shows_cause=bool(place))
    return None


def _tile(output: WrongValue, name: str, values: Array) -> int | None:
    """Return the number of elements of a flattened input per block; None if unknown, or if blocks take rows of it."""
    tiling = output.context.tiling(name, values, first=True)
    return tiling[0] if len(tiling) == 1 else None


def _counted(output: WrongValue, name: str, values: Array) -> Pattern | None:
    counts = {np.count_nonzero(values): " that are not 0", values.size: ""}
    if output.got[0] not in counts or not _is_expected(output, np.add, values):
        return None
    return Pattern(f"it is the number of elements of `{name}`{counts[output.got[0]]}", COUNTED)


def _something_else(output: WrongValue, name: str, values: Array) -> Pattern | None:
    if np.ptp(values) == 0 or output.got[0] == 0:  # zero has several explanations
        return None
    near = np.flatnonzero(output.explained(values.astype(output.wanted.dtype)))
    is_one_value = near.size > 0 and np.ptp(values[near]) == 0  # else any of several elements, and likely by chance
    which = {0: "first", values.size - 1: "last"}.get(int(near[0])) if near.size == 1 else None
    for words, operation in OPERATIONS.items():
        of = "of" if words in ("sum", "product") else "element of"
        if not (of == "of" or is_one_value) or _is_expected(output, operation, values):
            continue
        if _is(output, operation, values):
            if which and of != "of":  # either may be chance: another case tells more
                return Pattern(f"it is the {which} element of `{name}`, which is the {words}")
            return Pattern(f"it is the {words} {of} `{name}`", OTHER_OPERATION)
    return Pattern(f"it is the {which} element of `{name}`", ONE_ELEMENT) if which else None


def _part_left_out(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise the sum without some terms, or with some counted twice; not certain if different terms fit."""
    tile = _tile(output, name, values)
    fitting: list[tuple[Terms, Pattern]] = []
    # A maximum is ambiguous: without most parts, it is the second largest element.
    for operation in (np.add, np.multiply):
        if not _is_expected(output, operation, values) or output.got[0] in (0, operation.identity):
            continue
        for part in candidate_terms(values.size, tile, output.context):
            if _is(output, operation, values[~part.elements]):
                fitting.append((part, Pattern(f"it is the result for `{name}` without {part.words}", part.cause)))
            elif operation is np.add and _is(output, operation, values, values[part.elements]):
                what = f"it is the result for `{name}` with {part.words} counted twice"
                fitting.append((part, Pattern(what, COUNTED_TWICE)))
    if not fitting:
        return None
    part, pattern = min(fitting, key=lambda fit: fit[0].elements.sum())
    is_certain = all((other.elements & part.elements).sum() == part.elements.sum() for other, _ in fitting)
    return pattern if is_certain else None


def _index_factors(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise a sum or product of the elements that wrong factors in an index take, in each launch."""
    launches = output.context.plan.launches if output.context.plan else ()
    if not launches or values.size > MAX_TAKEN or {launch.kernel for launch in launches} != {launches[0].kernel}:
        return None
    blocks = [math.prod(launch.grid) for launch in launches]
    for operation in (np.add, np.multiply):
        if not _is_expected(output, operation, values) or output.got[0] in (0, operation.identity):
            continue
        for factors in index_factors(launches[0], values.size, output.context.tunables):
            if output.is_explained_by(_of_blocks(operation, values.astype(output.wanted.dtype), factors, blocks)):
                return Pattern(f"it is the result if {factors.words(blocks[0])}", FACTORS)
    return None


def _of_blocks(operation: Any, values: Array, factors: IndexFactors, blocks: list[int]) -> Array:
    """Return the result of launches, each on the values that the blocks of the one before leave, shape (1,)."""
    with np.errstate(all="ignore"):
        for count in blocks:
            padded = np.append(values, values.dtype.type(operation.identity))
            values = operation.reduce(padded[factors.taken(count, values.size)], axis=1, dtype=values.dtype)
        return np.asarray(operation.reduce(values, keepdims=True, dtype=values.dtype))


def _small_index(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise a sum or product by an index of a smaller type, which leaves elements out or takes others again."""
    tile = _tile(output, name, values) or 1
    reached = -(-values.size // tile) * tile  # also by threads beyond the end: their small indexes begin anew
    for operation in (np.add, np.multiply):
        for kind in SMALL_INDEXES if _is_expected(output, operation, values) else ():
            taken = np.arange(reached).astype(kind).astype(np.intp)
            if _is(output, operation, values[taken[(taken >= 0) & (taken < values.size)]]):
                bits, last = 8 * np.dtype(kind).itemsize, np.iinfo(kind).max
                if last + 1 == output.context.block_threads:
                    return Pattern(f"it is the result if element {last + 1} and so on are 0 to {last} again", SAME_ITEM)
                return Pattern(f"it is the result for an index of {bits} bits, which ends at {last}", INDEX)
    return None


def _foreign(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise a maximum or minimum, and no sum, that is neither an element nor the type's start value."""
    got, kind = output.got[0], values.dtype
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    is_choice = any(_is_expected(output, operation, values) for operation in (np.maximum, np.minimum))
    if (
        not is_choice
        or _is_expected(output, np.add, values)
        or got in (limits.min, limits.max)
        or (values == got).any()
    ):
        return None
    what = f"it is {number(got)}, which is no element of `{name}`"
    if kind.kind == "f" and abs(got) == -float(np.iinfo(np.int32).min):  # a float's conversion ends at the ends of int
        return Pattern(what, FRACTION)
    if np.isinf(got):
        return Pattern(what, INFINITE)
    is_filling = got == 1 or len(set(got.tobytes())) == 1  # 0, -1, and the garbage in memory repeat a byte
    return Pattern(what, FOREIGN if is_filling else FOREIGN_OPERATION)


def _wraps_around(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise partial sums beyond the range of the result's type, which only an integer of that type wraps around."""
    if not output.is_exact or not _is_expected(output, np.add, values):
        return None
    limits = np.iinfo(output.actual.dtype)
    sums = np.cumsum(values, dtype=np.float64)
    if limits.min <= sums.min() and sums.max() <= limits.max:
        return None
    return Pattern(f"intermediate sums exceed the range of {output.actual.dtype} and must wrap around", WRAPS)


def _of_one_value(output: WrongValue, name: str, values: Array) -> Pattern | None:
    """Recognise the sum of the same element for all threads, and a product with a 0 that is not from the input."""
    threads = output.context.block_threads or 0
    if _is_expected(output, np.add, values) and output.is_explained_by(
        values[:1].astype(output.wanted.dtype) * threads
    ):
        return Pattern(f"it is {threads} times the first element of `{name}`", SAME_ELEMENT)
    # an integer product of another type may lose all of its last bits
    is_zero = output.got[0] == 0 and values.dtype.kind == "f" and bool(values.all())
    if is_zero and _is_expected(output, np.multiply, values):
        return Pattern(f"it is 0, but no element of `{name}` is", FOREIGN)
    return None


def _is_expected(output: WrongValue, operation: Any, values: Array) -> bool:
    with np.errstate(all="ignore"):
        result = operation.reduce(values, dtype=output.wanted.dtype).item()
    return bool(abs(result - output.wanted[0].item()) <= output.allowed[0])  # Python's integers do not wrap around


def _is(output: WrongValue, operation: Any, *parts: Array) -> bool:
    """Return True if the result is that of these elements; False for none, and for all elements twice."""
    kind = output.wanted.dtype
    values = np.concatenate(parts)
    if values.size == 0 or (len(parts) > 1 and parts[1].size == parts[0].size):
        return False
    with np.errstate(all="ignore"):
        return output.is_explained_by(operation.reduce(values, dtype=kind, keepdims=True))


def candidate_terms(size: int, tile: int | None, context: RunContext) -> Iterator[Terms]:
    """Yield the terms that reductions often miss: ends, rests of blocks and warps, some positions of every block."""
    index, threads = np.arange(size), context.block_threads
    last_one = causes.LAST_ALONE if size % WARP == 1 else causes.LAST_ONE
    yield Terms(index == size - 1, f"the last element (index {size - 1})", last_one)
    yield Terms(index == 0, "the first element", causes.FIRST_ONE)
    blocks = -(-size // tile) if tile else 1
    if tile and blocks > 1:
        start = (blocks - 1) * tile
        yield Terms(
            index >= start, f"the last block's elements (block {blocks - 1}, {start} to {size - 1})", LAST_BLOCK_LOST
        )
        yield Terms(index < tile, f"the first block's elements (0 to {tile - 1})", causes.FIRST_BLOCK)
        yield Terms(index >= tile, f"the elements after the first block ({tile} to {size - 1})", NO_OTHER_BLOCK)
    for unit in (2, 4, 8, 16, WARP, threads or WARP):
        rest = size % unit
        if rest > 1:
            # with a single whole unit before it, the rest may as well be a half
            cause = causes.TAIL if size >= 2 * unit else causes.ROUND
            yield Terms(index >= size - rest, f"the last {rest} elements (from index {size - rest} on)", cause)
    position = index % (tile or size)
    if threads and threads > WARP:
        yield Terms(position % threads >= WARP, "the elements of each block after its first warp", causes.OTHER_WARPS)
        yield Terms(position >= threads, "the elements of each thread after its first", causes.IN_EACH_BLOCK)
    apart = (threads if tile else context.first_threads) or size  # of the items of a thread, in each block or in a loop
    has_next = (position + apart < (tile or size)) & (index + apart < size)
    if has_next.any():
        yield Terms(has_next, "the elements of each thread before its last", REPLACED)
    for first in (2, 8):
        cause = FAR_APART if first in context.tunables.values() else SIZEOF
        yield Terms(position >= first, f"the elements after the first {first} of each block", cause)
    if tile and tile > 1:
        yield Terms(position >= tile // 2, "the second half of every block's elements", causes.ROUND)
    yield Terms(index % 2 == 1, "the elements with an odd index", causes.ROUND)
    yield Terms(index % 2 == 0, "the elements with an even index", causes.ROUND)
