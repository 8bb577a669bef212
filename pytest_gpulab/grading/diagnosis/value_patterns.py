"""What wrong values have in common: those of the neighbours, twice what was expected, whole numbers, a block's sum.

Every pattern is tested on all wrong elements, so what it says is true; only the cause is a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log2

import numpy as np

from .coincidence import CERTAIN, GENERAL, distinct, is_likely, is_tiny, value_bits
from .patterns import Array, Pattern, WrongValue

_Way = Callable[[WrongValue], Pattern | None]

FACTORS = {2.0: "twice", 4.0: "4 times", 8.0: "8 times", 32.0: "32 times", 0.5: "half of", 0.25: "a quarter of"}
NEARLY, NEARLY_ALONE = 0.01, 0.001  # relative; few elements come near by chance
FEW = 3
SMALL_TYPES = {"f": (np.float16,), "i": (np.int16, np.int8, np.uint16, np.uint8), "u": (np.uint16, np.uint8)}

NAN = (
    "Usual cause: a value that nobody has set: here, memory and registers hold NaN until they are written. Otherwise "
    "0/0, the root of a negative number, or the difference of two infinities."
)
INFINITE = "Usual cause: a division by 0, a value that nobody has set, or a type whose range is too small."
CONSTANT = (
    "Usual cause: what was computed is never added or stored here, or a condition leaves the start value as it is."
)
SHIFT = (
    "Usual cause: an index off by one. In a scan: inclusive and exclusive mixed up. Does the result of an element "
    "contain the element itself?"
)
NEGATED = "Usual cause: a sign that gets lost, or a difference with its sides swapped."
FACTOR = "Usual cause: the same part is counted more than once, or only a part of it. Who adds what, and how often?"
UNCHANGED = "Usual cause: a condition that is never true here, so that nothing is computed; or the input is stored."
FIRST_INPUT = (
    "Usual cause: the first element is left out, or counted twice. Does the first thread do what the others do?"
)
OFFSET = "Usual cause: something is added to all of them alike, or missing in all alike."
CARRY = "Usual cause: what the blocks before add up to never gets here. Who writes it, who reads it, and when?"
OWN_BLOCK = "Usual cause: the sum that a block takes over contains its own elements already. Whose sum should it be?"
PER_BLOCK = "Usual cause: each block is right in itself, and what it takes over from other blocks is not."
REPEATED = "Usual cause: an index that leaves out the block's number."
MIRRORED = "Usual cause: an index that counts from the wrong end."
TRANSPOSED = "Usual cause: x and y, or width and height, are swapped in an index."
PERMUTED = "Usual cause: the index of the store is not that of the load."
FRACTION = "Usual cause: an `int` on the way, which drops the fraction. What type has each intermediate value?"
FEWER_BITS = "Usual cause: a variable of a smaller type on the way. What type has each intermediate value?"
NEARLY_RIGHT = (
    "Usual cause: a type with fewer digits on the way, or one small part of the sum is missing. Rounding alone cannot "
    "be so far off."
)


def pattern_of(mistake: WrongValue) -> Pattern | None:
    """Return the most specific statement that holds of all wrong values and hardly by chance, or None."""
    bits = value_bits(mistake)
    ways = (*_FACTS, *_PREDICTIONS, *_KINDS) if not is_tiny(mistake) and not is_likely(bits) else _FACTS
    for way in ways:
        if (pattern := way(mistake)) is not None:
            return _weighed(pattern, way, bits)
    return None


def _weighed(pattern: Pattern, way: _Way, bits: float) -> Pattern:
    """Return the pattern with how much it says: least where it would hold after many mistakes."""
    if way in _FACTS or not pattern.telling:
        return pattern
    general = way in _KINDS or pattern.cause in (PER_BLOCK, PERMUTED)
    return replace(pattern, bits=min(pattern.bits or bits, GENERAL if general else CERTAIN))


def _them(mistake: WrongValue) -> str:
    return "it" if mistake.at.size == 1 else "each of them"


def _tile(mistake: WrongValue) -> int:
    """Return the elements of a block of an array in a row; 0 where that is not known or there is one block only."""
    (tile,) = mistake.tiling if mistake.actual.ndim == 1 else (None,)
    return tile if tile and 1 < tile < mistake.actual.size else 0


def _not_finite(mistake: WrongValue) -> Pattern | None:
    if mistake.actual.dtype.kind != "f" or np.isfinite(mistake.got).any():
        return None
    if np.isnan(mistake.got).all():
        return Pattern(f"{_them(mistake)} is NaN (not a number)", NAN)
    return Pattern(f"{_them(mistake)} is infinite", INFINITE) if np.isinf(mistake.got).all() else None


def _constant(mistake: WrongValue) -> Pattern | None:
    first, kind = mistake.got[0], mistake.actual.dtype
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind) if kind.kind in "iu" else None
    names = {0: "0", 1: "1"}
    if limits:
        names |= {limits.min: f"the lowest {kind} number", limits.max: f"the highest {kind} number"}
    if first in names and (mistake.got == first).all():
        cause = CONSTANT if mistake.at.size > 1 or mistake.actual.size > 1 or _starts_with(mistake, first) else ""
        return Pattern(f"{_them(mistake)} is {names[first]}", cause, telling=False)
    if mistake.at.size > 2 and (mistake.got == first).all() and np.ptp(mistake.wanted) > 0:
        return Pattern(f"{_them(mistake)} is {number(first)}", CONSTANT, telling=False)
    return None


def _starts_with(mistake: WrongValue, first: object) -> bool:
    """Return whether a single result is the value that its sum starts with."""
    inputs = [values for values in mistake.around.inputs.values() if values.dtype.kind in "iuf"]
    if first != 0 or len(inputs) != 1:
        return False
    total = inputs[0].sum(dtype=mistake.wanted.dtype)
    return bool(abs(total - mistake.wanted[0]) <= max(mistake.allowed[0], 0))


def _known(mistake: WrongValue) -> Pattern | None:
    """Recognise what the exercise says of usual mistakes; elements may differ in the mistake."""
    known = [each for each in mistake.around.known() if mistake.name in each.values]
    fits = [_fits(mistake, np.asarray(each.values[mistake.name]).reshape(-1)) for each in known]
    order = sorted(range(len(known)), key=lambda at: not fits[at].all())  # one that explains all leaves none to chance
    left, parts = np.ones(mistake.at.size, bool), []
    for each, mine in ((known[at], fits[at] & left) for at in order):
        if mine.any():
            parts.append((int(mine.sum()), each))
            left &= ~mine
    if left.any() or not parts:
        return None
    bits = value_bits(mistake) - distinct(mistake).size * log2(len(known))
    if is_likely(bits):
        return None
    if len(parts) == 1:
        return Pattern(f"{_them(mistake)} is {parts[0][1].what}", parts[0][1].cause, bits=bits)
    counted = [f"{count} of them {'is' if count == 1 else 'are'} {each.what}" for count, each in parts]
    return Pattern(", ".join(counted), max(parts, key=lambda part: part[0])[1].cause, bits=bits)


def _fits(mistake: WrongValue, values: Array) -> Array:
    fits = np.zeros(mistake.at.size, bool)
    fits[:] = mistake.explained(values[mistake.at])
    return fits


def _factor(mistake: WrongValue) -> Pattern | None:
    if mistake.is_explained_by(-mistake.wanted):
        return Pattern(f"{_them(mistake)} has the wrong sign, and is right otherwise", NEGATED)
    for factor, words in FACTORS.items():
        if mistake.is_exact and factor < 1:
            parts = round(1 / factor)
            holds = bool((mistake.got * parts == mistake.wanted).all())
        else:
            holds = mistake.is_explained_by(mistake.wanted * mistake.wanted.dtype.type(factor), factor)
        if holds:
            return Pattern(f"{_them(mistake)} is {words} what is expected", FACTOR)
    return None


def _shift(mistake: WrongValue) -> Pattern | None:
    """Recognise a result that stands one place too far to the right or left."""
    if mistake.actual.ndim != 1:
        return None
    last = mistake.actual.size - 1
    expected = mistake.expected.astype(mistake.wanted.dtype)
    for by, end, side in ((1, 0, "left"), (-1, last, "right")):
        inner = replace(mistake, wrong=mistake.wrong & (np.arange(last + 1) != end))
        if inner.at.size > 1 and inner.is_explained_by(expected[inner.at - by]):
            which = "each of them" if not mistake.wrong[end] else f"each of them but the {'last' if end else 'first'}"
            return Pattern(f"{which} holds what its {side} neighbour should", SHIFT)
    return None


def _own_input(mistake: WrongValue) -> Pattern | None:
    """Recognise the other kind of scan by what it has too much or too little, also where there is one element only."""
    for name, values in mistake.like_output().items():
        own, is_telling = values[mistake.at], mistake.at.size > 1 or mistake.actual.size == 1
        if mistake.is_explained_by(mistake.wanted + own):
            return Pattern(f"{_them(mistake)} is too large by its own element of `{name}`", SHIFT, is_telling)
        if mistake.is_explained_by(mistake.wanted - own):
            return Pattern(f"{_them(mistake)} is too small by its own element of `{name}`", SHIFT, is_telling)
        if mistake.is_explained_by(own):
            return Pattern(f"{_them(mistake)} is its own element of `{name}`, unchanged", UNCHANGED)
    return None


def _offset(mistake: WrongValue) -> Pattern | None:
    """Recognise one difference that is the same everywhere."""
    if mistake.at.size < 2 or np.ptp(mistake.wanted) == 0:
        return None
    difference = np.median(mistake.difference) if not mistake.is_exact else mistake.difference[0]
    if not mistake.is_explained_by(mistake.wanted + difference):
        return None
    size = "large" if difference > 0 else "small"
    for name, values in mistake.like_output().items():
        if values.size > 2 and mistake.is_explained_by(mistake.wanted + np.sign(difference) * abs(values[0])):
            return Pattern(f"each of them is too {size} by the first element of `{name}`", FIRST_INPUT)
    return Pattern(f"each of them is too {size} by {number(abs(difference))}", OFFSET)


def _block_sums(mistake: WrongValue) -> Pattern | None:
    """Recognise a scan in which blocks take over too little or too much of the others."""
    tile = _tile(mistake)
    for name, values in mistake.like_output().items() if tile else ():
        block = mistake.at // tile
        sums = np.add.reduceat(values, np.arange(0, values.size, tile), dtype=values.dtype)
        before = np.cumsum(sums, dtype=values.dtype) - sums
        if mistake.is_explained_by(mistake.wanted - before[block]):
            return Pattern(f"{_them(mistake)} lacks all of `{name}` that lies in the blocks before its own", CARRY)
        if mistake.is_explained_by(mistake.wanted + sums[block]):
            return Pattern(f"{_them(mistake)} is too large by the sum of its own block's part of `{name}`", OWN_BLOCK)
    return None


def _by_block(mistake: WrongValue) -> Pattern | None:
    """Recognise a difference that is the same within each block."""
    tile = _tile(mistake)
    if not tile:
        return None
    block = mistake.at // tile
    present, first, counts = np.unique(block, return_index=True, return_counts=True)
    offsets = mistake.difference[first][np.searchsorted(present, block)]
    if counts.max() > 1 and present.size < mistake.at.size / 2 and mistake.is_explained_by(mistake.wanted + offsets):
        return Pattern("within a block each is off by the same amount", PER_BLOCK)
    return None


def _repeated_block(mistake: WrongValue) -> Pattern | None:
    tile = _tile(mistake)
    if tile and mistake.at.size > 1:
        expected = mistake.expected.astype(mistake.wanted.dtype)
        if mistake.is_explained_by(expected[mistake.at % tile]):
            return Pattern("each block repeats what the first one should hold", REPEATED)
    return None


def _moved(mistake: WrongValue) -> Pattern | None:
    """Recognise right values at wrong places."""
    expected = mistake.expected.astype(mistake.wanted.dtype)
    if mistake.at.size < 3:
        return None
    if _is_transposed(mistake, expected):
        return Pattern("rows and columns are swapped: the value at (y, x) is that of (x, y)", TRANSPOSED)
    if expected.ndim == 2 and mistake.is_explained_by(expected.T.reshape(-1)[mistake.at]):
        return Pattern("rows and columns are swapped", TRANSPOSED)
    if mistake.is_explained_by(expected.reshape(-1)[::-1][mistake.at]):
        return Pattern("the order is reversed", MIRRORED)
    if mistake.at.size > 3 and np.ptp(mistake.wanted) > 0:
        order, wanted = np.argsort(mistake.got, kind="stable"), np.sort(mistake.wanted)
        ranked = np.empty_like(wanted)
        ranked[order] = wanted
        if mistake.is_explained_by(ranked):
            return Pattern("the right values are there, but in other places", PERMUTED)
    return None


def _is_transposed(mistake: WrongValue, expected: Array) -> bool:
    """Return whether x and y are swapped, as far as both are in the range of the other."""
    if expected.ndim != 2 or min(expected.shape) < 2:
        return False
    side = min(expected.shape)
    wrong = mistake.wrong.copy()
    wrong[side:], wrong[:, side:] = False, False
    inner, square = replace(mistake, wrong=wrong), np.zeros_like(expected)
    square[:side, :side] = expected[:side, :side].T
    return inner.at.size > 2 and inner.is_explained_by(square.reshape(-1)[inner.at])


def _whole_numbers(mistake: WrongValue) -> Pattern | None:
    if mistake.actual.dtype.kind != "f":
        return None
    wanted = mistake.wanted.astype(mistake.actual.dtype)
    if np.abs(mistake.got).max() > 1 / np.finfo(wanted.dtype).eps:
        return None  # all such large floats are whole numbers
    if (mistake.got == np.rint(mistake.got)).all() and (wanted != np.rint(wanted)).mean() > 0.5:
        spacing = np.spacing(np.abs(np.unique(mistake.got[mistake.got != 0])))
        return Pattern(f"{_them(mistake)} is a whole number", FRACTION, bits=float(-np.log2(spacing).sum()))
    return None


def _small_type(mistake: WrongValue) -> Pattern | None:
    """Recognise values that a smaller type can hold, while it cannot hold what was expected."""
    wanted = mistake.wanted.astype(mistake.actual.dtype)
    for small in SMALL_TYPES.get(mistake.actual.dtype.kind, ()):
        if np.dtype(small).itemsize >= mistake.actual.dtype.itemsize:
            continue
        with np.errstate(all="ignore"):
            cut = wanted.astype(small).astype(mistake.actual.dtype)
            held = mistake.got.astype(small).astype(mistake.actual.dtype)
        bits = 8 * np.dtype(small).itemsize
        if mistake.is_exact and (mistake.got == cut).all():
            return Pattern(f"{_them(mistake)} is what {bits} bits hold of the expected number", FEWER_BITS)
        if not mistake.is_exact and (mistake.got == held).all() and (cut != wanted).mean() > 0.5:
            return Pattern(f"{_them(mistake)} is a number that a {bits}-bit float can hold", FEWER_BITS)
    return None


def _nearly(mistake: WrongValue) -> Pattern | None:
    if mistake.is_exact or not np.isfinite(mistake.got).all() or not mistake.wanted.all():
        return None
    worst = float(np.abs(mistake.difference / mistake.wanted).max())
    if worst > (NEARLY if mistake.at.size > FEW else NEARLY_ALONE):
        return None
    return Pattern(f"{_them(mistake)} is nearly right: the largest error is {100 * worst:.2g} %", NEARLY_RIGHT, False)


def number(value: object) -> str:
    """Return a NumPy scalar as a student would write it."""
    return f"{float(value):.9g}" if isinstance(value, float | np.floating) else str(value)


_FACTS: tuple[_Way, ...] = (_not_finite, _constant)
"""Statements that need no prediction and hold of few elements, too."""

_PREDICTIONS: tuple[_Way, ...] = (
    _known,
    _factor,
    _shift,
    _block_sums,
    _own_input,
    _offset,
    _by_block,
    _repeated_block,
    _moved,
)
"""Each predicts every wrong value."""

_KINDS: tuple[_Way, ...] = (_whole_numbers, _small_type, _nearly)
"""Of what kind all wrong values are."""
