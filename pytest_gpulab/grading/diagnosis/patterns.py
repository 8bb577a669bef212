"""What is known of an output that came out wrong, and a pattern in it: a statement that holds, and its usual cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import KnownMistake, Plan

from .tiling import Tiling, tiling_of

Array = npt.NDArray[Any]

ROUNDING = 2.0**-22  # of float32: that of the reference, cast, and that of a sum or product of two such
FAR = 4  # a wrong element must be so many times nearer to what explains it than to what was expected


@dataclass(frozen=True)
class Pattern:
    """Something that all wrong elements have in common.

    Attributes:
        what: words that hold of every one of them, whatever the cause.
        cause: the usual cause, never the solution; empty where there is no usual one.
        telling: whether the values alone say enough; else the place of the elements may say more.
        bits: how unlikely it is to hold by chance, see `coincidence`; 0 where nothing can be learned from it.
    """

    what: str
    cause: str = ""
    telling: bool = True
    bits: float = 0.0


@dataclass(frozen=True)
class RunContext:
    """Where an output comes from, as far as it is known.

    Attributes:
        plan: how it was run.
        inputs: input buffer to what the kernels read.
        tunables: the submission's choices.
        known: makes what known mistakes would leave in the outputs, see `Exercise.mistakes`.
    """

    plan: Plan | None = None
    inputs: Mapping[str, Array] = field(default_factory=dict)
    tunables: Mapping[str, int] = field(default_factory=dict)
    known: Callable[[], Sequence[KnownMistake]] = tuple

    def tiling(self, name: str, array: Array, first: bool = False) -> Tiling:
        """Return how blocks share a buffer: see `tiling_of`."""
        return (None,) * array.ndim if self.plan is None else tiling_of(self.plan, name, self.tunables, first)

    @property
    def block_threads(self) -> int | None:
        """The threads of a block, where all launches agree."""
        sizes = {int(np.prod(launch.block)) for launch in self.plan.launches} if self.plan else set()
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True, eq=False)
class WrongValue:
    """An output, what was expected, and where it is wrong: at one element at least.

    Attributes:
        name: the output buffer's.
        actual, expected, tolerance, wrong: arrays of one shape.
        around: where it comes from.
    """

    name: str
    actual: Array
    expected: Array
    tolerance: Array
    wrong: Array
    around: RunContext

    @cached_property
    def tiling(self) -> Tiling:
        """How blocks share the output, as far as it is known."""
        return self.around.tiling(self.name, self.actual)

    @cached_property
    def at(self) -> Array:
        """Flat indices of the wrong elements."""
        return np.flatnonzero(self.wrong)

    @cached_property
    def got(self) -> Array:
        """The wrong elements."""
        return self.actual.reshape(-1)[self.at]

    @cached_property
    def wanted(self) -> Array:
        """What was expected in their place, in a type that can be calculated with: their own, or float64."""
        wanted = self.expected.reshape(-1)[self.at]
        return wanted.astype(self.actual.dtype if self.is_exact else np.float64)

    @cached_property
    def allowed(self) -> Array:
        """The tolerance in their place."""
        return self.tolerance.reshape(-1)[self.at].astype(np.float64)

    @cached_property
    def is_exact(self) -> bool:
        """Whether these are integers, whose differences wrap around and are never inexact."""
        return self.actual.dtype.kind in "iu" and self.expected.dtype.kind in "iub"

    @cached_property
    def difference(self) -> Array:
        """By how much each wrong element is too large."""
        with np.errstate(all="ignore"):
            difference: Array = (self.got if self.is_exact else self.got.astype(np.float64)) - self.wanted
        return difference

    def is_explained_by(self, values: Array, scale: float = 1.0) -> bool:
        """Whether every wrong element is such a value, and much nearer to it than to what was expected.

        Args:
            values: one a wrong element, or one for all.
            scale: how many times the tolerance the values may be off for the same reasons as the expected ones.
        """
        return bool(self.explained(values, scale).all())

    def explained(self, values: Array, scale: float = 1.0) -> Array:
        """Return which wrong elements are such values; see `is_explained_by`."""
        if self.is_exact:
            return np.asarray(self.got == np.asarray(values).astype(self.got.dtype))
        with np.errstate(all="ignore"):
            error = np.abs(self.got.astype(np.float64) - values)
            slack = 2 * scale * self.allowed + ROUNDING * np.maximum(np.abs(values), np.abs(self.wanted))
            return np.asarray((error <= slack) & (FAR * error <= np.abs(self.difference)))

    def like_output(self) -> Mapping[str, Array]:
        """Return the input arrays that have an element for each of the output's, flat, in the output's arithmetic."""
        kind = self.actual.dtype if self.is_exact else np.dtype(np.float64)
        fitting = {name: x for name, x in self.around.inputs.items() if x.shape == self.actual.shape}
        return {name: x.reshape(-1).astype(kind) for name, x in fitting.items() if x.dtype.kind in "iuf"}
