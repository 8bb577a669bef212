"""Patterns in the relation of wrong values to the expected ones: a factor, a difference, terms of the coordinates."""

from math import log2

import numpy as np

from .coincidence import FEW, distinct, is_likely
from .patterns import FAR, ROUNDING, Pattern, WrongValue, number, units_of
from .scan_patterns import is_scan

FACTORS = {2.0: "twice", 4.0: "4 times", 8.0: "8 times", 32.0: "32 times", 0.5: "half of", 0.25: "a quarter of"}
LEAST_QUOTIENT = 8  # smaller results of a division by an unknown number may be chance
NEAR_ONE = 0.01  # of a factor that is rather a rounding error
NO_TERM = 1e-3  # relative to the largest term of a sum
NEGATED = "Usual cause: a lost sign, or a difference with swapped operands."
FACTOR = (
    "Usual cause: the same part is counted more than once, or only a part of it. Which thread adds which part, and how "
    "often?"
)
SCALE = "Usual cause: a factor or a division that the exercise does not ask for, such as a mean in place of a sum."
TERM = (
    "Usual cause: a term with x or y in it that has another factor or operand than the formula, or is added too often. "
    "Compare each term with the exercise's."
)
FIRST_SUM = (
    "Usual cause: a step that adds the sum of the first elements is left out, or made twice. Which thread adds it to "
    "the first wrong element, and in which step?"
)
FIRST_INPUT = (
    "Usual cause: the first element is left out, or counted twice. Does the first thread do what the others do?"
)
OFFSET = "Usual cause: the same value is added to all of them, or missing in all of them."
ONE_PER_UNIT = (
    "Usual cause: a result that is replaced where a {0}'s value should be added to it, or an index without threadIdx."
)
_SAME_ALONG = (
    "Usual cause: a term without {0} in it, which is the same in this {1}, is wrong, missing or added. Compare each "
    "term with the exercise's."
)
ALONG_ROW, ALONG_COLUMN = _SAME_ALONG.format("x", "row"), _SAME_ALONG.format("y", "column")
PER_UNIT = "Usual cause: each {0} is correct in itself, but the value that it takes from other {0}s is not."
PER_BLOCK = PER_UNIT.format("block")
WHOLE = 0.001  # distance to a whole number, of a factor that is one


def common_factor(output: WrongValue) -> Pattern | None:
    """Recognise the negated values, and the expected ones times one of `FACTORS`."""
    if output.is_explained_by(-output.wanted):
        return Pattern(f"{output.them} has the wrong sign, but the correct magnitude", NEGATED)
    for factor, words in FACTORS.items():
        if output.is_exact and factor < 1:
            parts = round(1 / factor)
            holds = bool((output.got * parts == output.wanted).all())
        else:
            holds = output.is_explained_by(output.wanted * output.wanted.dtype.type(factor), factor)
        if holds:
            return Pattern(f"{output.them} is {words} the expected value", FACTOR if factor > 1 else SCALE)
    return None


def other_factor(output: WrongValue) -> Pattern | None:
    """Recognise the expected values times, or divided by, any number."""
    if distinct(output).size <= FEW:
        return None
    if output.is_exact:
        return _quotient(output)
    largest = np.abs(output.wanted).argmax()
    factor = float(output.got[largest] / output.wanted[largest])
    if abs(factor - 1) < NEAR_ONE or not output.is_explained_by(output.wanted * factor, max(1.0, abs(factor))):
        return None
    is_multiple = abs(factor - round(factor)) < WHOLE and factor > 1
    return Pattern(f"{output.them} is {factor:.6g} times the expected value", FACTOR if is_multiple else SCALE)


def _quotient(output: WrongValue) -> Pattern | None:
    got, wanted = np.abs(output.got.astype(np.float64)), np.abs(output.wanted.astype(np.float64))
    if got.max() < LEAST_QUOTIENT or not wanted.all():
        return None
    factor = got[0] // wanted[0]
    if factor and output.is_explained_by(output.wanted * output.wanted.dtype.type(factor)):
        return Pattern(f"{output.them} is {factor:.0f} times the expected value", FACTOR)
    divisor = np.floor((wanted[got > 0] / got[got > 0]).min())
    if divisor and (output.got == np.trunc(output.wanted / divisor)).all():
        return Pattern(f"{output.them} is the expected value divided by {divisor:.0f}", SCALE)
    return None


def offset(output: WrongValue) -> Pattern | None:
    """Recognise a difference that is the same for all elements."""
    if output.at.size < 2 or np.ptp(output.wanted) == 0:
        return None
    difference = np.median(output.difference) if not output.is_exact else output.difference[0]
    if not output.is_explained_by(output.wanted + difference):
        return None
    if output.actual.dtype.kind == "u":  # below 0 it wraps around
        difference = difference.astype(np.dtype(f"i{output.actual.itemsize}"))
    for words, sign in ("plus", 1), ("minus", -1):
        if (pattern := _first_elements(output, sign * float(difference), f"the expected value {words}")) is not None:
            return pattern
    cause = PER_BLOCK if output.tile and output.at[0] >= output.tile else OFFSET
    if output.actual.ndim == 2 and min(output.actual.shape) == 1:
        cause = ALONG_ROW if output.actual.shape[0] == 1 else ALONG_COLUMN
    size = "large" if difference > 0 else "small"
    return Pattern(f"each of them is too {size} by {number(abs(difference))}", cause)


def _first_elements(output: WrongValue, total: float, what: str) -> Pattern | None:
    """Recognise a total as the first element; in a scan also as the sum of the first ones, all before wrong ones."""
    for name, values in output.like_output().items():
        sums = np.cumsum(values[: output.at[0] + 1] if is_scan(output) else values[:1], dtype=values.dtype)
        allowed = 0.5 if output.is_exact else 2 * output.allowed.max() + ROUNDING * np.abs(output.wanted).max()
        slack = min(allowed, abs(total) / FAR)
        near = np.flatnonzero(np.abs(sums.astype(np.float64) - total) <= slack)
        if near.size != 1 or values.size <= 2:
            continue
        if near[0] == 0:
            return Pattern(f"each of them is {what} the first element of `{name}`", FIRST_INPUT)
        if not is_likely(log2(np.ptp(sums) / (2 * slack)), sums.size):
            return Pattern(f"each of them is {what} the sum of the first {near[0] + 1} elements of `{name}`", FIRST_SUM)
    return None


def block_offset(output: WrongValue) -> Pattern | None:
    """Recognise a difference that is the same within each block, or each warp or thread."""
    return next((found for unit, noun in units_of(output) if (found := _offset_in(output, unit, noun))), None)


def _offset_in(output: WrongValue, unit: int, noun: str) -> Pattern | None:
    mine = output.at // unit
    present, first, counts = np.unique(mine, return_index=True, return_counts=True)
    offsets = output.difference[first][np.searchsorted(present, mine)]
    if counts.max() < 2 or present.size >= output.at.size / 2:
        return None
    if output.is_explained_by(output.wanted + offsets):
        return Pattern(f"within a {noun} each is off by the same amount", PER_UNIT.format(noun))
    is_one = (output.got == output.got[first][np.searchsorted(present, mine)]).all()
    return Pattern(f"within a {noun} all of them are the same number", ONE_PER_UNIT.format(noun)) if is_one else None


def difference_by_coordinates(output: WrongValue) -> Pattern | None:
    """Recognise a difference that is a sum of multiples of the coordinates in a plane, and of their products."""
    y, x = np.array(np.divmod(output.at, output.actual.shape[-1]), np.float64)
    named = (("x * x", x * x), ("x * y", x * y), ("y * y", y * y), ("x", x), ("y", y))
    terms = {f"* {name}": values for name, values in named if np.unique(values).size > (FEW if "*" in name else 1)}
    terms[""] = np.ones(x.shape)
    if output.actual.ndim != 2 or distinct(output).size <= 2 * len(terms):
        return None
    matrix = np.stack(list(terms.values()), axis=1)
    scale = np.abs(matrix).max(axis=0)
    factors = np.linalg.lstsq(matrix / scale, output.difference, rcond=None)[0] / scale
    parts = {words: factor * values for (words, values), factor in zip(terms.items(), factors, strict=True)}
    size = max(np.abs(part).max() for part in parts.values())
    words = [
        f"{factor:+.6g} {name}".strip()
        for (name, part), factor in zip(parts.items(), factors, strict=True)
        if np.abs(part).max() > NO_TERM * size
    ]
    if not words or words[0][-1] not in "xy" or not output.is_explained_by(output.wanted + sum(parts.values())):
        return None
    return Pattern(f"each of them differs from the expected value by {' '.join(words)}", TERM)
