"""A wrong output with its context, the blocks' share of it, and a pattern: a true statement and its usual cause."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pytest_gpulab.exercise import Array, KnownMistake, Launch, Plan

Tiling = tuple[int | None, ...]
"""Elements per block along each axis of an array; None where not certain."""

WARP = 32
ROUNDING = 2.0**-22  # of float32: the rounding of the cast reference, and of a sum or product of two such
NEAR = 1e-3  # relative, for a single result; the check's tolerance does not hold for another operation
FAR = 4  # factor by which a wrong element must be nearer to its explanation than to the expected value


@dataclass(frozen=True)
class Pattern:
    """A statement that holds for all wrong elements."""

    what: str  # the statement, which is true for any cause
    cause: str = ""  # the usual cause, never the solution; empty if there is none
    shows_cause: bool = True  # True if the values show the cause; False if the positions may show more
    bits: float = 0.0  # the information in it, see `coincidence`; 0 if it explains nothing


@dataclass(frozen=True)
class RunContext:
    """The origin of an output, as far as known."""

    plan: Plan | None = None  # the plan that was replayed
    inputs: Mapping[str, Array] = field(default_factory=dict)  # input buffer to its contents
    tunables: Mapping[str, int] = field(default_factory=dict)
    # a function that computes the outputs of known mistakes, see `Exercise.mistakes`
    known: Callable[[], Sequence[KnownMistake]] = tuple

    def tiling(self, name: str, array: Array, first: bool = False) -> Tiling:
        """Return the tiling of a buffer; see `tiling_of`."""
        return (None,) * array.ndim if self.plan is None else tiling_of(self.plan, name, self.tunables, first)

    @property
    def block_threads(self) -> int | None:
        """The threads per block, if all launches agree."""
        sizes = {int(np.prod(launch.block)) for launch in self.plan.launches} if self.plan else set()
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def first_threads(self) -> int:
        """The threads of the first launch; 0 if unknown."""
        return math.prod((*self.plan.launches[0].grid, *self.plan.launches[0].block)) if self.plan else 0


@dataclass(frozen=True, eq=False)
class WrongValue:
    """An output with at least one wrong element; `actual`, `expected`, `tolerance`, `wrong` are arrays of one shape."""

    name: str
    actual: Array
    expected: Array
    tolerance: Array
    wrong: Array
    context: RunContext

    @cached_property
    def tiling(self) -> Tiling:
        """The tiling of the output."""
        return self.context.tiling(self.name, self.actual)

    @property
    def tile(self) -> int:
        """The elements per block of a 1-D array; 0 if unknown or if there is only one block."""
        (tile,) = self.tiling if self.actual.ndim == 1 else (None,)
        return tile if tile and 1 < tile < self.actual.size else 0

    @property
    def them(self) -> str:
        """The words for the wrong elements."""
        return "it" if self.at.size == 1 else "each of them"

    @cached_property
    def at(self) -> Array:
        """Flat indices of the wrong elements."""
        return np.flatnonzero(self.wrong)

    @cached_property
    def got(self) -> Array:
        """The values of the wrong elements."""
        return self.actual.reshape(-1)[self.at]

    @cached_property
    def wanted(self) -> Array:
        """The expected values of the wrong elements, for arithmetic: in their own integer type, or in float64."""
        wanted = self.expected.reshape(-1)[self.at]
        return wanted.astype(self.actual.dtype if self.is_exact else np.float64)

    @cached_property
    def allowed(self) -> Array:
        """The tolerance of the wrong elements."""
        return self.tolerance.reshape(-1)[self.at].astype(np.float64)

    @cached_property
    def is_exact(self) -> bool:
        """True if these are integers, with exact differences that wrap around."""
        return self.actual.dtype.kind in "iu" and self.expected.dtype.kind in "iub"

    @cached_property
    def difference(self) -> Array:
        """The wrong elements minus the expected values."""
        with np.errstate(all="ignore"):
            difference: Array = (self.got if self.is_exact else self.got.astype(np.float64)) - self.wanted
        return difference

    def is_explained_by(self, values: Array, scale: float = 1.0) -> bool:
        """Return True if every wrong element is near the given value, and much nearer than to the expected one.

        `scale` is a factor on the tolerance, for values with larger rounding errors than the expected ones.
        """
        return bool(self.explained(values, scale).all())

    def explained(self, values: Array, scale: float = 1.0) -> Array:
        """Return which wrong elements are near the given values; see `is_explained_by`."""
        if self.is_exact:
            return np.asarray(self.got == np.asarray(values).astype(self.got.dtype))
        with np.errstate(all="ignore"):
            error = np.abs(self.got.astype(np.float64) - values)
            slack = 2 * scale * self.allowed + ROUNDING * np.maximum(np.abs(values), np.abs(self.wanted))
            if self.actual.size == 1:  # of a large product, the tolerance is too wide for small results
                slack = np.minimum(slack, NEAR * np.abs(values))
            return np.asarray((error <= slack) & (FAR * error <= np.abs(self.difference)))

    def like_output(self) -> Mapping[str, Array]:
        """Return the input arrays of the output's shape, flat, in the output's arithmetic."""
        kind = self.actual.dtype if self.is_exact else np.dtype(np.float64)
        fitting = {name: x for name, x in self.context.inputs.items() if x.shape == self.actual.shape}
        return {name: x.reshape(-1).astype(kind) for name, x in fitting.items() if x.dtype.kind in "iuf"}


UNITS = ("block", "warp", "thread")


def units_of(output: WrongValue) -> Iterator[tuple[int, str]]:
    """Yield the consecutive elements per block, per warp of a thread per element, and per thread of several items."""
    size = output.actual.size if output.actual.ndim == 1 else 0
    tile, threads = output.tile or size, output.context.block_threads or size
    items = tile // threads if threads and tile % threads == 0 else 1
    for unit, noun in zip((output.tile, WARP if tile > WARP else 0, items), UNITS, strict=True):
        if unit > 1:
            yield unit, noun


def number(value: object) -> str:
    """Return a NumPy scalar as plain text."""
    return f"{float(value):.9g}" if isinstance(value, float | np.floating) else str(value)


def tiling_of(plan: Plan, name: str, tunables: Mapping[str, int], first: bool = False) -> Tiling:
    """Return the tiling of a buffer by the last launch that takes it, or the first one.

    A block is assumed to take as many consecutive elements as it has threads, or a multiple that is one of the
    submission's tunables. The tiling is unknown if no such number fits the grid, or several do.
    """
    shape = plan.buffer(name).shape
    launches = [launch for launch in plan.launches if name in launch.args]
    if not launches:
        return (None,) * len(shape)
    return _tiling(launches[0 if first else -1], shape, {1, *tunables.values()})


def _tiling(launch: Launch, shape: tuple[int, ...], factors: set[int]) -> Tiling:
    grid, block = (tuple(extents) + (1,) * (3 - len(extents)) for extents in (launch.grid, launch.block))
    axes = len(shape)
    if axes == 1 and grid[1:] == (1, 1):
        return (_tile(shape[0], grid[0], math.prod(block), factors),)
    if axes == 1 or axes > 3 or grid[axes:] != (1,) * (3 - axes):
        return (None,) * axes
    return tuple(_tile(shape[-1 - axis], grid[axis], block[axis], factors) for axis in range(axes))[::-1]


def _tile(length: int, blocks: int, threads: int, factors: set[int]) -> int | None:
    if blocks == 1:
        return length if length <= threads else None
    fitting = {threads * factor for factor in factors if factor > 0 and -(-length // (threads * factor)) == blocks}
    return fitting.pop() if len(fitting) == 1 else None
