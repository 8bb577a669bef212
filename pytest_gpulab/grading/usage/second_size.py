"""A second, smaller size than one that an exercise names: a kernel that knows the first one does not know this one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_gpulab.exercise import Size

LEAST = 64  # an extent below that counts something else than elements, such as vectors
SHARES = 4, 2  # of a size, the smallest and the largest
WHOLE_BLOCKS, WHOLE_WARPS = 1024, 32  # threads: no partial ones where the size itself has none


def jittered(size: Size, known: Sequence[Size], rng: np.random.Generator) -> Size | None:
    """Return a size of a quarter to a half of another in each extent, or None.

    What all sizes of an exercise have in common is kept: powers of two, a common divisor, extents that are equal.

    Args:
        size: that the exercise names.
        known: others that it names.
        rng: chooses.
    """
    extents = _extents(size)
    columns = [(n, *(_extents(other)[axis] for other in known)) for axis, n in enumerate(extents)]
    chosen: dict[tuple[int, ...], int] = {}
    for column in columns:
        if column not in chosen:
            chosen[column] = _smaller(column[0], column[1:], rng)
    found = tuple(chosen[column] for column in columns)
    if found == extents:
        return None
    return found if isinstance(size, tuple) else found[0]


def _extents(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _smaller(n: int, known: Sequence[int], rng: np.random.Generator) -> int:
    if n < LEAST:
        return n
    if all(_is_power_of_two(other) for other in (n, *known)):
        return n // 2
    wanted = WHOLE_BLOCKS if n >= WHOLE_BLOCKS * LEAST else WHOLE_WARPS
    unit = math.lcm(wanted if n >= wanted * max(SHARES) else 1, math.gcd(*known))
    low, high = (-(-n // SHARES[0] // unit), n // SHARES[1] // unit)
    return unit * int(rng.integers(low, high, endpoint=True)) if 0 < low <= high else n


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0
