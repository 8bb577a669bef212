"""A second size, smaller than the exercise's and random, so that no kernel can recognise it."""

import math
from collections.abc import Sequence

import numpy as np

from pytest_gpulab.exercise import Size
from pytest_gpulab.grading.correctness.sizes import extents_of

LEAST = 64  # a smaller extent may count something else than elements, such as vectors
SHARES = 4, 2  # divisors of the size: the new one is a quarter to a half of it
WHOLE_BLOCKS, WHOLE_WARPS = 1024, 32  # threads: no partial block or warp if the size itself has none


def jittered(size: Size, known: Sequence[Size], rng: np.random.Generator) -> Size | None:
    """Return a size with a quarter to a half of each extent, or None.

    It has the properties that all known sizes of the exercise share: powers of two, a common divisor, equal extents.
    """
    extents = extents_of(size)
    columns = [(n, *(extents_of(other)[axis] for other in known)) for axis, n in enumerate(extents)]
    chosen: dict[tuple[int, ...], int] = {}
    for column in columns:
        if column not in chosen:
            chosen[column] = _smaller(column[0], column[1:], rng)
    found = tuple(chosen[column] for column in columns)
    if found == extents:
        return None
    return found if isinstance(size, tuple) else found[0]


def _smaller(n: int, known: Sequence[int], rng: np.random.Generator) -> int:
    if n < LEAST:
        return n
    if all(other > 0 and other & (other - 1) == 0 for other in (n, *known)):
        return n // 2
    wanted = WHOLE_BLOCKS if n >= WHOLE_BLOCKS * LEAST else WHOLE_WARPS
    unit = math.lcm(wanted if n >= wanted * max(SHARES) else 1, math.gcd(*known))
    low, high = (-(-n // SHARES[0] // unit), n // SHARES[1] // unit)
    return unit * int(rng.integers(low, high, endpoint=True)) if 0 < low <= high else n
