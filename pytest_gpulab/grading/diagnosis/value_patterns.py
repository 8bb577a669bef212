"""Patterns in wrong values: the neighbours' values, twice the expected ones, whole numbers, a block's sum.

Every pattern is tested on all wrong elements, so its statement is true. Only the cause is a guess.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log2

import numpy as np

from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.plans.prepare import FRACTION as FRACTION

from .arithmetic_patterns import (
    PER_UNIT,
    block_offset,
    common_factor,
    difference_by_coordinates,
    offset,
    other_factor,
)
from .coincidence import CERTAIN, FEW, GENERAL, LEAST_BITS, are_zeros_and_ones, distinct, is_likely, is_tiny, value_bits
from .patterns import ROUNDING, UNITS, Pattern, WrongValue, number
from .scan_patterns import SCAN_SHIFT, backwards, block_sums, is_scan, step_left_out, strided_items

_Way = Callable[[WrongValue], Pattern | None]

NEARLY, NEARLY_ALONE = 0.01, 0.001  # relative; a few elements may be near by chance
RELATED = 0.3  # correlation; that of unrelated values is near 0, that of truncated ones near 1
MAX_SEARCHED = 1 << 18  # elements in which the origin of others is searched: more would take seconds
MAX_SOURCES = 8  # elements to try as the origin of a value
MOST_COUNTS = 1000  # times the largest expected counter; others hold garbage
MOST_WRAPS, WRAP_ERROR = 100, 1e-4  # of unsigned numbers in a sum; further ones hold garbage, or are chance
SMALL_TYPES = {"i": (np.int16, np.int8, np.uint16, np.uint8), "u": (np.uint16, np.uint8)}

NAN = (
    "Usual cause: a value that was never set: here, memory and registers hold NaN until they are written. Otherwise "
    "0/0, the root of a negative number, or the difference of two infinities."
)
INFINITE = "Usual cause: a division by 0, a value that was never set, or a type with too small a range."
WRAPPED = (
    "Usual cause: a difference of unsigned numbers. Below 0, it wraps around to 2**32. Which types are subtracted?"
)
CONSTANT = (
    "Usual cause: the computed value is never added or stored here, or it is lost: set to 0 again, or overwritten "
    "before it is used. Or a condition leaves the start value as it is, or zeros are read from another place."
)
SHIFT = "Usual cause: an index off by one or more. Which element does each thread read, and which does it write?"
OWN_ELEMENT = "Usual cause: the element itself is left out, or counted once too often."
OTHER_SIGN = "Usual cause: another operation than the one asked for. Which sign stands between the two elements?"
UNCHANGED = (
    "Usual cause: nothing is added to the input: a condition that is never true here, a sum that starts anew in each "
    "round, or, with two buffers, the wrong one of them."
)
OTHER_COUNTER = "Usual cause: an element is counted by another counter than its own. How is the counter's index made?"
TOO_MANY = (
    "Usual cause: an element is counted more than once, by several threads or rounds of a loop, or as more than 1."
)
TOO_FEW = (
    "Usual cause: elements that no thread counts, or a counter that is overwritten, where only an atomic adds to it."
)
REPEATED = "Usual cause: an index that leaves out the block's number."
MIRRORED = "Usual cause: an index that counts from the wrong end."
TRANSPOSED = "Usual cause: x and y, or width and height, are swapped in an index."
PERMUTED = "Usual cause: the index of the store is not that of the load."
FEWER_BITS = "Usual cause: an intermediate value of a smaller type. What type has each of them?"
INT_OR_HALF = "Usual cause: an intermediate value of a smaller type, `int` or `__half`. What type has each of them?"
NEARLY_RIGHT = (
    "Usual cause: an intermediate value of a type with fewer digits, or a small missing term. The error is too large "
    "for rounding alone."
)


def pattern_of(output: WrongValue) -> Pattern | None:
    """Return the most specific pattern that holds for all wrong values and hardly by chance, or None."""
    bits = value_bits(output)
    is_chance = (
        is_tiny(output)
        or is_likely(bits)
        or (are_zeros_and_ones(output.context.inputs) and distinct(output).size <= FEW)
    )
    ways = (_not_finite, _wrapped, _total, _constant) if is_chance else (*_FACTS, *_PREDICTIONS, *_KINDS)
    for way in ways:
        if (pattern := way(output)) is not None:
            return _weighed(pattern, way, bits)
    return None


def _weighed(pattern: Pattern, way: _Way, bits: float) -> Pattern:
    """Return the pattern with its bits; unspecific ones, which many mistakes produce, get the fewest."""
    if way in _FACTS or not pattern.shows_cause:
        return pattern
    general = way in _KINDS or pattern.cause in (*(PER_UNIT.format(noun) for noun in UNITS), PERMUTED)
    return replace(pattern, bits=min(pattern.bits or bits, GENERAL if general else CERTAIN))


def _not_finite(output: WrongValue) -> Pattern | None:
    if output.actual.dtype.kind != "f" or np.isfinite(output.got).any():
        return None
    if np.isnan(output.got).all():
        return Pattern(f"{output.them} is NaN (not a number)", NAN)
    return Pattern(f"{output.them} is infinite", INFINITE) if np.isinf(output.got).all() else None


def _constant(output: WrongValue) -> Pattern | None:
    first, kind = output.got[0], output.actual.dtype
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind) if kind.kind in "iu" else None
    names = {limits.min: f"the lowest {kind} number", limits.max: f"the highest {kind} number"} if limits else {}
    names |= {0: "0", 1: "1"}  # 0 is the lowest unsigned number
    if first in (0, 1) and are_zeros_and_ones(output.context.inputs):
        return None  # most mistakes have such results then
    if first in names and (output.got == first).all():
        cause = CONSTANT if output.at.size > 1 or output.actual.size > 1 or _starts_with(output, first) else ""
        # if the correct elements are 0, too, their places mean nothing
        is_all = output.at.size > FEW and bool((output.actual == first).all())
        is_repeated = output.at.size == 1 and names[first] == number(first)  # the element's own line says so
        what = "" if is_repeated else f"{output.them} is {names[first]}"
        return Pattern(what, cause, shows_cause=is_all, bits=GENERAL if is_all else 0)
    if output.at.size > 2 and (output.got == first).all() and np.ptp(output.wanted) > 0:
        return Pattern(f"{output.them} is {number(first)}", CONSTANT, shows_cause=False)
    return None


def _wrapped(output: WrongValue) -> Pattern | None:
    """Recognise floats of negative numbers as unsigned ones, and of their squares."""
    if output.actual.dtype.kind != "f" or np.abs(output.wanted).max() >= 2**31:
        return None
    for exponent in (32, 64):
        wraps = output.got.astype(np.float64) / 2.0**exponent
        whole = np.rint(wraps)
        if (whole > 0).all() and whole.max() < MOST_WRAPS and np.abs(wraps - whole).max() < WRAP_ERROR:
            return Pattern(f"{output.them} is almost 2**{exponent}, or that times a small whole number", WRAPPED)
    return None


def _starts_with(output: WrongValue, first: object) -> bool:
    """Return True if a single result is the start value of its sum."""
    inputs = [values for values in output.context.inputs.values() if values.dtype.kind in "iuf"]
    if first != 0 or len(inputs) != 1:
        return False
    total = inputs[0].sum(dtype=output.wanted.dtype)
    return bool(abs(total - output.wanted[0]) <= max(output.allowed[0], 0))


def _known(output: WrongValue) -> Pattern | None:
    """Recognise the exercise's known mistakes; different elements may have different ones."""
    known = [each for each in output.context.known() if output.name in each.values]
    fits = [_fits(output, np.asarray(each.values[output.name]).reshape(-1)) for each in known]
    # One that explains all elements needs no combination.
    order = sorted(range(len(known)), key=lambda at: not fits[at].all())
    left, parts = np.ones(output.at.size, bool), []
    for each, mine in ((known[at], fits[at] & left) for at in order):
        if mine.any():
            parts.append((int(mine.sum()), each))
            left &= ~mine
    if left.any() or not parts:
        return None
    bits = value_bits(output) - distinct(output).size * log2(len(known))
    if is_likely(bits):
        return None
    if len(parts) == 1:
        return Pattern(f"{output.them} is {parts[0][1].what}", parts[0][1].cause, bits=bits)
    counted = [f"{count} of them {'is' if count == 1 else 'are'} {each.what}" for count, each in parts]
    return Pattern(", ".join(counted), max(parts, key=lambda part: part[0])[1].cause, bits=bits)


def _fits(output: WrongValue, values: Array) -> Array:
    fits = np.zeros(output.at.size, bool)
    fits[:] = output.explained(values[output.at])
    return fits


def _shift(output: WrongValue) -> Pattern | None:
    """Recognise values one position too far to the right or left."""
    if output.actual.ndim != 1:
        return None
    last, cause = output.actual.size - 1, SCAN_SHIFT if is_scan(output) else SHIFT
    expected = output.expected.astype(output.wanted.dtype)
    for by, end, side in ((1, 0, "left"), (-1, last, "right")):
        inner = replace(output, wrong=output.wrong & (np.arange(last + 1) != end))
        if inner.at.size > 1 and inner.is_explained_by(expected[inner.at - by]):
            which = "each of them" if not output.wrong[end] else f"each of them but the {'last' if end else 'first'}"
            return Pattern(f"{which} holds the expected value of its {side} neighbour", cause)
    return None


def _own_input(output: WrongValue) -> Pattern | None:
    """Recognise the other kind of scan by its own element too much or too little, even with one element."""
    cause = SCAN_SHIFT if is_scan(output) else OWN_ELEMENT
    for name, values in output.like_output().items():
        own, shows_cause = values[output.at], output.at.size > 1 or output.actual.size == 1
        if output.is_explained_by(output.wanted + own):
            return Pattern(f"{output.them} is the expected value plus its own element of `{name}`", cause, shows_cause)
        if output.is_explained_by(output.wanted - own):
            return Pattern(f"{output.them} is the expected value minus its own element of `{name}`", cause, shows_cause)
        if output.is_explained_by(own):
            return Pattern(f"{output.them} is its own element of `{name}`, unchanged", UNCHANGED)
    return None


def _two_inputs(output: WrongValue) -> Pattern | None:
    """Recognise the difference or the product of two inputs in place of another operation."""
    named = output.like_output()
    if len(named) != 2:
        return None
    (first, a), (second, b) = ((name, values[output.at]) for name, values in named.items())
    with np.errstate(all="ignore"):  # integers wrap around as in the kernel
        results = {f"{first} - {second}": a - b, f"{second} - {first}": b - a, f"{first} * {second}": a * b}
    words = next((words for words, values in results.items() if output.is_explained_by(values)), "")
    return Pattern(f"{output.them} is {words}", OTHER_SIGN) if words else None


def _repeated_block(output: WrongValue) -> Pattern | None:
    tile = output.tile
    if tile and output.at.size > 1:
        expected = output.expected.astype(output.wanted.dtype)
        if output.is_explained_by(expected[output.at % tile]):
            return Pattern("each block repeats the expected values of the first block", REPEATED)
    return None


def _displaced(output: WrongValue) -> Pattern | None:
    """Recognise the values of elements at one distance, wherever there is an element."""
    expected, shape = output.expected.astype(output.wanted.dtype), output.expected.shape
    if expected.size > MAX_SEARCHED:
        return None
    at = np.stack(np.unravel_index(output.at, shape))
    for picked in (output.at.size // part for part in (2, 3, 5)):
        got = output.got[picked].astype(expected.dtype)
        for other in np.argwhere(np.abs(expected - got) <= ROUNDING * np.abs(got))[:MAX_SOURCES]:
            away = other - at[:, picked]
            source = at + away[:, None]
            is_inside = np.all((source >= 0) & (source < np.array(shape)[:, None]), axis=0)
            wrong = np.zeros_like(output.wrong)
            wrong.reshape(-1)[output.at[is_inside]] = True
            inner = replace(output, wrong=wrong)
            is_varied = np.unique(inner.got).size > FEW  # else it is a constant that other elements are, too
            if (
                is_varied
                and 2 * inner.at.size > output.at.size > FEW
                and inner.is_explained_by(expected[tuple(source[:, is_inside])])
            ):
                names = ("y", "x") if away.size == 2 else ("index",)
                words = [f"{name} {step:+}" for name, step in zip(names, away.tolist(), strict=False) if step]
                return Pattern(f"each of them holds the expected value of another element: {', '.join(words)}", SHIFT)
    return None


def _moved(output: WrongValue) -> Pattern | None:
    """Recognise correct values at wrong positions."""
    expected = output.expected.astype(output.wanted.dtype)
    if output.at.size < 3:
        return None
    if _is_transposed(output, expected):
        return Pattern("rows and columns are swapped: the value at (y, x) is that of (x, y)", TRANSPOSED)
    if expected.ndim == 2 and output.is_explained_by(expected.T.reshape(-1)[output.at]):
        return Pattern("rows and columns are swapped", TRANSPOSED)
    if output.is_explained_by(expected.reshape(-1)[::-1][output.at]):
        return Pattern("the order is reversed", MIRRORED)
    if output.at.size > 3 and np.ptp(output.wanted) > 0:
        order, wanted = np.argsort(output.got, kind="stable"), np.sort(output.wanted)
        ranked = np.empty_like(wanted)
        ranked[order] = wanted
        if output.is_explained_by(ranked):
            return _total(output) or Pattern("the correct values are there, but at other positions", PERMUTED)
    return None


def _is_transposed(output: WrongValue, expected: Array) -> bool:
    """Return True if x and y are swapped, within the square that both axes cover."""
    if expected.ndim != 2 or min(expected.shape) < 2:
        return False
    side = min(expected.shape)
    wrong = output.wrong.copy()
    wrong[side:], wrong[:, side:] = False, False
    inner, square = replace(output, wrong=wrong), np.zeros_like(expected)
    square[:side, :side] = expected[:side, :side].T
    return inner.at.size > 2 and inner.is_explained_by(square.reshape(-1)[inner.at])


def _whole_numbers(output: WrongValue) -> Pattern | None:
    if output.actual.dtype.kind != "f":
        return None
    wanted = output.wanted.astype(output.actual.dtype)
    if np.abs(output.got).max() > 1 / np.finfo(wanted.dtype).eps:
        return None  # all such large floats are whole numbers
    if (output.got == np.rint(output.got)).all() and (wanted != np.rint(wanted)).mean() > 0.5:
        spacing = np.spacing(np.abs(np.unique(output.got[output.got != 0])))
        cause = FRACTION if _rise_together(output.got, wanted) else ""
        if cause and _may_be_halves(output.got):
            cause = INT_OR_HALF
        bits = float(-np.log2(spacing).sum())
        return None if is_likely(bits, tried=1) else Pattern(f"{output.them} is a whole number", cause, bits=bits)
    return None


def _may_be_halves(got: Array) -> bool:
    """Return True if whole numbers may come from a 16-bit float: it holds them, and most are large or few."""
    with np.errstate(over="ignore"):
        halves = np.unique(got).astype(np.float16)
    bits = -np.log2(np.spacing(np.abs(halves[halves != 0])).astype(np.float32))  # zeros after the binary point
    return bool(np.isin(got, halves).all() and bits.sum() < LEAST_BITS)


def _rise_together(got: Array, wanted: Array) -> bool:
    """Return True unless the values have nothing to do with the expected ones; few cannot tell."""
    if got.size <= FEW or np.ptp(got) == 0 or np.ptp(wanted) == 0:
        return True
    return bool(np.corrcoef(got.astype(np.float64), wanted.astype(np.float64))[0, 1] > RELATED)


def _cut(output: WrongValue) -> Pattern | None:
    """Recognise whole numbers that have lost their upper bits."""
    kind = output.actual.dtype
    for small in map(np.dtype, SMALL_TYPES.get(kind.kind, ()) if output.is_exact else ()):
        if small.itemsize < kind.itemsize and (output.got == output.wanted.astype(small).astype(kind)).all():
            return Pattern(f"{output.them} is the expected number cut to {8 * small.itemsize} bits", FEWER_BITS)
    return None


def _small_type(output: WrongValue) -> Pattern | None:
    """Recognise values that a smaller type can hold, or has held on the way, unlike the expected ones."""
    kind = output.actual.dtype
    wanted = output.wanted.astype(kind)
    if not output.is_exact and kind.kind == "f" and kind.itemsize > 2:
        with np.errstate(all="ignore"):
            cut, held = (values.astype(np.float16).astype(kind) for values in (wanted, output.got))
        if (output.got == held).all() and (cut != wanted).mean() > 0.5:
            return Pattern(f"{output.them} is a number that a 16-bit float can hold", FEWER_BITS)
    if output.is_exact and output.actual.dtype.itemsize > 2 and not (output.difference % 2**16).any():
        return Pattern(f"{output.them} differs from the expected number by a multiple of {2**16}", FEWER_BITS)
    return None


def _total(output: WrongValue) -> Pattern | None:
    """Compare the sum of wrong counters, if any counts, with the number of elements."""
    if output.actual.dtype.kind != "u" or not output.is_exact:
        return None
    total, found = int(output.expected.sum()), int(output.actual.sum(dtype=np.uint64))
    most = MOST_COUNTS * int(output.expected.max())
    if all(x.size != total for x in output.context.inputs.values()) or not found or output.got.max() > most:
        return None
    what = f"all elements of `{output.name}` together add up to"
    if found == total:
        return Pattern(f"{what} the correct {total}", OTHER_COUNTER, bits=GENERAL)
    return Pattern(f"{what} {found}, not {total}", TOO_FEW if found < total else TOO_MANY)


def _counts(output: WrongValue) -> Pattern | None:
    """Recognise counters that are all too large, or all too small."""
    got, wanted = output.got.astype(np.float64), output.wanted.astype(np.float64)
    most = MOST_COUNTS * float(output.expected.max())  # not in the type of the counters
    if output.actual.dtype.kind != "u" or got.size <= FEW or got.max() > most:
        return None
    if (got > wanted).all():
        return Pattern(f"{output.them} is too large, by {(got - wanted).sum():.0f} in all", TOO_MANY)
    if (got < wanted).all():
        return Pattern(f"{output.them} is too small, by {(wanted - got).sum():.0f} in all", TOO_FEW)
    return None


def _nearly(output: WrongValue) -> Pattern | None:
    if output.is_exact or not np.isfinite(output.got).all() or not output.wanted.all():
        return None
    worst = float(np.abs(output.difference / output.wanted).max())
    if worst > (NEARLY if output.at.size > FEW else NEARLY_ALONE):
        return None
    return Pattern(f"{output.them} is nearly correct: the largest error is {100 * worst:.2g} %", NEARLY_RIGHT, False)


_FACTS: tuple[_Way, ...] = (_not_finite, _wrapped, _constant)
"""Patterns without a prediction; they count for few elements, too."""

_PREDICTIONS: tuple[_Way, ...] = (
    _known,
    _cut,
    common_factor,
    _shift,
    block_sums,
    backwards,
    step_left_out,
    strided_items,
    _own_input,
    _two_inputs,
    offset,
    block_offset,
    _repeated_block,
    _moved,
    _displaced,
    other_factor,
    difference_by_coordinates,
)
"""Patterns that predict every wrong value."""

_KINDS: tuple[_Way, ...] = (_whole_numbers, _small_type, _counts, _total, _nearly)
"""Patterns in the kind of all wrong values."""
