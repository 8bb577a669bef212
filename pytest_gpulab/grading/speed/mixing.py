"""Input contents that no run has met before: stretches of one set in place of the same stretches of another.

A kernel that recognises an input, by a few elements of it or by its address, and hands out the answer that it stored
when it met that input first, is fast in all timed runs but one and right wherever contents return. So they never do.
Making new ones takes the CPU too long, and so do their answers; mixing two sets on the GPU takes two small copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .contents import Array, Inputs, private_copy

LONGEST_SHARE = 8  # of the elements before it, a stretch has at most one in so many


@dataclass(frozen=True)
class Mix:
    """One set of contents with two stretches of another.

    Attributes:
        base: the index of the set.
        places: where the stretches begin, from 0 up to 1; none leaves the set as it is. The first is on a logarithmic
            scale: running sums forgive less near their beginning, and who looks at a few elements, spread over all,
            hardly meets it there. The second is a single element anywhere, so that mixes of short arrays differ, too.
    """

    base: int
    places: tuple[float, ...] = ()

    @classmethod
    def drawn(cls, base: int, rng: np.random.Generator) -> Mix:
        """Return a mix with stretches at random."""
        return cls(base, (float(rng.random()), float(rng.random())))

    def other(self, sets: int) -> int:
        """Return the index of the set that the stretches come from."""
        return (self.base + 1) % sets

    def stretches(self, elements: int) -> tuple[slice, ...]:
        """Return which elements of an array, counted in row-major order, come from the other set."""
        if not self.places or not elements:
            return ()
        by_scale, anywhere = self.places
        first, single = int(elements**by_scale) - 1, int(elements * anywhere)
        return slice(first, min(elements, first + 1 + first // LONGEST_SHARE)), slice(single, single + 1)

    def pieces(self, elements: int, sets: int) -> Iterator[tuple[int, slice]]:
        """Yield what an array of so many elements is made of: the index of a set, and which of its elements."""
        stretches = self.stretches(elements)
        borders = {0, elements, *(border for each in stretches for border in (each.start, each.stop))}
        for first, end in pairwise(sorted(borders)):
            is_other = any(each.start <= first < each.stop for each in stretches)
            yield self.other(sets) if is_other else self.base, slice(first, end)


def mixed(contents: Sequence[Inputs], mix: Mix) -> Inputs:
    """Return the contents that a mix makes, read-only, for arrays that are contiguous."""
    return {name: _mixed(contents, mix, name) for name in contents[mix.base]}


def _mixed(contents: Sequence[Inputs], mix: Mix, name: str) -> Array:
    if not mix.places:
        return np.asarray(contents[mix.base][name])
    values = private_copy(contents[mix.base][name])
    for stretch in mix.stretches(values.size):
        values.reshape(-1)[stretch] = contents[mix.other(len(contents))][name].reshape(-1)[stretch]
    values.setflags(write=False)
    return values
