"""Simple input values, such as zeros and 1 2 3, and their notations in sentences and on the command line.

On the command line a list is written as `1,2,3`. It may hold repeated values (`0*256,1`) and ranges (`1..257`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import Array

from .patterns import number

MAX_SHOWN = 12  # elements that a sentence lists
MAX_PIECES = 24  # of a list on the command line
MIN_REPEATED = 3  # equal values that are listed one by one
_REPEATED = re.compile(r"(?P<value>[^*]+)\*(?P<count>\d+)")
_RANGE = re.compile(r"(?P<first>-?\d+)\.\.(?P<last>-?\d+)")


Bounds = Mapping[str, tuple[Any, Any]]
"""The smallest and the largest value of each input, by name."""


def bounds_of(samples: Iterable[Mapping[str, Array]]) -> dict[str, tuple[Any, Any]]:
    """Return the smallest and the largest values in samples of an exercise's inputs."""
    bounds: dict[str, tuple[Any, Any]] = {}
    for inputs in samples:
        for name, values in inputs.items():
            if values.size and values.dtype.kind in "iuf":
                low, high = bounds.get(name, (values.min(), values.max()))
                bounds[name] = (min(low, values.min()), max(high, values.max()))
    return bounds


def simple_inputs(own: Mapping[str, Array], bounds: Bounds) -> Iterator[dict[str, Array]]:
    """Yield simple contents of all inputs, the simplest first, in place of the exercise's `own`.

    These are zeros, a single 1 at the end or at the start, ones, minus ones, halves, and 1 2 3 and so on. If the bounds
    of the exercise's inputs have not both signs, simple values stay within them, because the exercise may require it.
    An input that allows no simple value keeps its own.
    """
    for make in _MAKERS:
        made = {name: make(values) for name, values in own.items()}
        simple = {name: value for name, value in made.items() if value is not None}
        simple = {name: value for name, value in simple.items() if _is_within(value, bounds.get(name))}
        if simple:
            yield {**own, **simple}


def _constant(value: float, own: Array) -> Array | None:
    fits = own.dtype.kind == "f" or (value == int(value) and (value >= 0 or own.dtype.kind == "i"))
    return np.full(own.shape, value, own.dtype) if fits and own.dtype.kind in "iuf" else None


def _single(at: int, own: Array) -> Array | None:
    values = _constant(0, own)
    if values is not None and own.size:
        values.reshape(-1)[at] = 1
    return values


def _counting(own: Array) -> Array | None:
    if own.dtype.kind not in "iuf" or (own.dtype.kind in "iu" and own.size > np.iinfo(own.dtype).max):
        return None
    return np.arange(1, own.size + 1).astype(own.dtype).reshape(own.shape)


_MAKERS: tuple[Callable[[Array], Array | None], ...] = (
    *(partial(_constant, 0), partial(_single, -1), partial(_single, 0)),
    *(partial(_constant, value) for value in (1, -1, 0.5)),
    _counting,
)
"""Each makes values of an own input's shape and type; the simplest first."""


def _is_within(values: Array, bounds: tuple[Any, Any] | None) -> bool:
    if bounds is None or values.size == 0:
        return False
    low, high = bounds
    return bool(low < 0 < high or (low <= values.min() and values.max() <= high))


def simplified(
    inputs: Mapping[str, Array],
    bounds: Bounds,
    fails: Callable[[Mapping[str, Array]], bool],
    ends: Callable[[], bool] = lambda: False,
) -> dict[str, Array]:
    """Return inputs that fail with as many zeros as possible, and then ones; ever smaller parts are replaced.

    `fails` runs other contents, and `ends` returns True once no more can be run. The method is delta debugging
    (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
    """
    best = dict(inputs)
    for simple in (0, 1):
        for name in best:
            for part in _parts(best[name].size):
                if ends():
                    return best
                changed = _replaced(best[name], part, simple)
                if changed is None or not _is_within(np.array(simple), bounds.get(name)):
                    continue
                if fails({**best, name: changed}):
                    best[name] = changed
    return best


def _parts(size: int) -> Iterator[slice]:
    """Yield the array, its halves, its quarters and so on, down to single elements."""
    length = size
    while length >= 1:
        yield from (slice(begin, begin + length) for begin in range(0, size, length))
        length //= 2


def _replaced(values: Array, part: slice, simple: int) -> Array | None:
    """Return an array with `simple` in place of a part's elements; zeros stay. None if nothing changes."""
    changed: Array = values.copy()
    piece = changed.reshape(-1)[part]
    piece[piece != 0] = simple
    return None if np.array_equal(changed, values) else changed


def shown(values: Array) -> str:
    """Return an array for a sentence: `[0 0 1]`, `[0 (256 times) 1]`, `[1 2 3 ... 257]`."""
    if values.size <= MAX_SHOWN:
        return _listed(values)
    runs = _runs(values)
    if len(runs) <= MAX_SHOWN // 2:
        return f"[{' '.join(text if count == 1 else f'{text} ({count} times)' for text, count in runs)}]"
    flat = values.reshape(-1)
    return f"[{' '.join(map(number, flat[:3]))} ... {number(flat[-1])}]"


def _listed(values: Array) -> str:
    if values.ndim == 0:
        return number(values[()])
    return f"[{' '.join(map(_listed, values))}]"


def _runs(values: Array) -> list[tuple[str, int]]:
    return [(text, len(list(group))) for text, group in groupby(map(number, values.reshape(-1)))]


def as_option(values: Array) -> str | None:
    """Return an array as a word of the command line, or None if it would be long."""
    flat = values.reshape(-1)
    if flat.size > 2 and np.array_equal(flat, np.arange(1, flat.size + 1)):
        return f"1..{flat.size}"
    pieces = [(text, len(list(group))) for text, group in groupby(map(_exact, flat))]
    if len(pieces) > MAX_PIECES:
        return None
    return ",".join(",".join([text] * count) if count <= MIN_REPEATED else f"{text}*{count}" for text, count in pieces)


def _exact(value: Any) -> str:
    return repr(value.item()) if value.dtype.itemsize == 8 else number(value)


def parsed(word: str, dtype: npt.DTypeLike) -> Array:
    """Return the array that a word of the command line lists, shape (count,).

    Raises ValueError if it is no list, or a value does not fit the type.
    """
    kind = np.dtype(dtype)
    convert: Callable[[str], Any] = float if kind.kind == "f" else int
    values: list[Any] = []
    for piece in word.split(","):
        if found := _RANGE.fullmatch(piece):
            first, last = int(found["first"]), int(found["last"])
            values += range(first, last + 1) if first <= last else range(first, last - 1, -1)
        elif found := _REPEATED.fullmatch(piece):
            values += [convert(found["value"])] * int(found["count"])
        else:
            values.append(convert(piece))
    if kind.kind in "iu" and values and not np.iinfo(kind).min <= min(values) <= max(values) <= np.iinfo(kind).max:
        raise ValueError(f"a value is outside of the range of {kind}")
    return np.array(values, kind)
