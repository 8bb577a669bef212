"""Unique input contents for each timed run: a base set with two ranges from another set.

A kernel could recognise an input by a few elements or by its address, and return the answer that it stored at the first
run. It would be fast in all runs but one, and correct for repeated contents. So contents never repeat. New contents and
their reference would take the CPU too long; mixing two sets takes two small copies on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pytest_gpulab.exercise import Array

from .contents import Inputs, private_copy

LONGEST_SHARE = 8  # a range is at most this fraction of the elements before it


@dataclass(frozen=True)
class Mix:
    """One set of contents with two ranges of another."""

    base: int  # the index of the set
    # positions of the ranges, from 0 up to 1; empty for the set itself. The first is on a logarithmic scale: tolerances
    # of running sums are smaller near the beginning, and a kernel that samples a few elements of the whole array hardly
    # reads there. The second is a single element anywhere, so that mixes of short arrays differ, too
    places: tuple[float, ...] = ()

    @classmethod
    def drawn(cls, base: int, rng: np.random.Generator) -> Mix:
        """Return a mix with ranges at random positions."""
        return cls(base, (float(rng.random()), float(rng.random())))

    def other(self, sets: int) -> int:
        """Return the index of the set with the ranges."""
        return (self.base + 1) % sets

    def stretches(self, elements: int) -> tuple[slice, ...]:
        """Return the ranges of elements, in row-major order, that come from the other set."""
        if not self.places or not elements:
            return ()
        by_scale, anywhere = self.places
        first, single = int(elements**by_scale) - 1, int(elements * anywhere)
        return slice(first, min(elements, first + 1 + first // LONGEST_SHARE)), slice(single, single + 1)

    def pieces(self, elements: int, sets: int) -> Iterator[tuple[int, slice]]:
        """Yield the pieces of an array of that size: the index of a set, and a range of its elements."""
        stretches = self.stretches(elements)
        borders = {0, elements, *(border for each in stretches for border in (each.start, each.stop))}
        for first, end in pairwise(sorted(borders)):
            is_other = any(each.start <= first < each.stop for each in stretches)
            yield self.other(sets) if is_other else self.base, slice(first, end)


def mixed(contents: Sequence[Inputs], mix: Mix) -> Inputs:
    """Return the mixed contents, read-only; arrays must be contiguous."""
    return {name: _mixed(contents, mix, name) for name in contents[mix.base]}


def _mixed(contents: Sequence[Inputs], mix: Mix, name: str) -> Array:
    if not mix.places:
        return np.asarray(contents[mix.base][name])
    values = private_copy(contents[mix.base][name])
    for stretch in mix.stretches(values.size):
        values.reshape(-1)[stretch] = contents[mix.other(len(contents))][name].reshape(-1)[stretch]
    values.setflags(write=False)
    return values
