"""Sizes to try for the smallest failing input, and the rule of those that fail.

Kernels go wrong at the edges of warps and blocks, so these sizes are tried first. Exercises may require more than their
plans say, such as multiples of a tile. So only sizes are tried that resemble those of the exercise's own cases.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.exercise import Size

WARP = 32
FIRST_SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
MIN_EXAMPLES = 2  # sizes of each kind that a rule needs
MAX_EXCEPTIONS = 2  # sizes that are named one by one

Extents = tuple[int, ...]


def extents_of(size: Size) -> Extents:
    """Return a size as a tuple."""
    return tuple(size) if isinstance(size, tuple) else (size,)


def power_of_two(n: int) -> bool:
    """Return True for 1, 2, 4 and so on."""
    return n & (n - 1) == 0


@dataclass(frozen=True)
class Axis:
    """The extents that one coordinate of a size may have."""

    known: tuple[int, ...]  # the extents in the exercise's cases
    edges: tuple[int, ...]  # extents of blocks and tiles

    @property
    def lowest(self) -> int:
        """The smallest extent of a case."""
        return min(self.known)

    def allows(self, extent: int) -> bool:
        """Return whether an extent resembles those of the cases."""
        if all(map(power_of_two, self.known)) and len(set(self.known)) > 1 and not power_of_two(extent):
            return False
        return self.lowest <= extent <= max(self.known) and extent % math.gcd(*self.known) == 0

    def between(self, low: int, high: int) -> int | None:
        """Return the allowed extent nearest to the middle of two others, or None if none is between them."""
        middle = (low + high) // 2
        outwards = (extent for off in range(high - low) for extent in (middle - off, middle + off))
        return next((extent for extent in outwards if low < extent < high and self.allows(extent)), None)

    def candidates(self) -> list[int]:
        """Return the extents to try, ascending."""
        around = {edge * k + off for edge in (WARP, *self.edges) for k in (1, 2, 3) for off in (-1, 0, 1)}
        return sorted(filter(self.allows, {*FIRST_SIZES, *around, *self.known}))


def axes_of(sizes: Iterable[Size], edges: Iterable[int]) -> tuple[Axis, ...]:
    """Return the coordinates of the sizes of an exercise's cases, given the extents of blocks and tiles."""
    return tuple(Axis(column, tuple(edges)) for column in zip(*map(extents_of, sizes), strict=True))


def rule(fails: Mapping[Extents, bool], names: Sequence[str], edges: Iterable[int]) -> str:
    """Return the rule of the sizes that fail, such as "every n that is no multiple of 256".

    `fails` has the sizes that were tried, `names` the coordinates, `edges` the extents of blocks and tiles. A rule
    needs `MIN_EXAMPLES` sizes that fail; one of multiples needs as many extents that do not. Without a rule, up to
    `MAX_EXCEPTIONS` sizes are named, or the extents that they alone have. The result is empty for other sizes.
    """
    bad, good = ([size for size, failed in fails.items() if failed is kind] for kind in (True, False))
    if len(bad) >= MIN_EXAMPLES and good:
        for words, holds in _conditions(bad, fails, names, sorted({2, WARP, *edges} - {1})):
            if all(holds(size) == failed for size, failed in fails.items()):
                return words
    every = f"every {names[0]} tried" if len(names) == 1 else "every size tried"
    if len(fails) <= MAX_EXCEPTIONS:
        return ""
    if not good:
        return every
    few, others = sorted((bad, good), key=len)
    named = _named(few, others, names)
    return f"{every} but {named}" if named and few is good else named


def _named(sizes: Sequence[Extents], others: Iterable[Extents], names: Sequence[str]) -> str:
    """Return the extents of a few sizes, or the extents of more sizes that no other size has; empty without any."""
    axes = list(range(len(names)))
    if len(sizes) > MAX_EXCEPTIONS:
        first = sizes[0]
        axes = [axis for axis in axes if all(size[axis] == first[axis] for size in sizes)]
        sizes = [first] if not any(all(size[axis] == first[axis] for axis in axes) for size in others) else []
    return " and ".join(", ".join(f"{names[axis]} = {size[axis]}" for axis in axes) for size in sizes)


def _conditions(
    bad: Sequence[Extents], tried: Iterable[Extents], names: Sequence[str], edges: Sequence[int]
) -> Iterator[tuple[str, Callable[[Extents], bool]]]:
    for axis, name in enumerate(names):
        of = f"every {name} that" if len(names) == 1 else f"every size where {name}"
        for words, holds in _axis_conditions({size[axis] for size in bad}, {size[axis] for size in tried}, edges):
            yield f"{of} {words}", lambda size, axis=axis, holds=holds: holds(size[axis])  # type: ignore[misc]
    if len(names) > 1:
        yield f"every size where {names[0]} and {names[1]} differ", lambda size: size[0] != size[1]
        yield f"every size where {names[0]} is larger than {names[1]}", lambda size: size[0] > size[1]
        yield f"every size where {names[0]} is smaller than {names[1]}", lambda size: size[0] < size[1]


def _axis_conditions(
    bad: set[int], tried: set[int], edges: Sequence[int]
) -> Iterator[tuple[str, Callable[[int], bool]]]:
    some = edges if len(tried - bad) >= MIN_EXAMPLES else ()
    for edge in some:
        yield f"is no multiple of {edge}", lambda n, edge=edge: n % edge != 0  # type: ignore[misc]
        yield f"is a multiple of {edge}", lambda n, edge=edge: n % edge == 0  # type: ignore[misc]
    if some:
        yield "is no power of two", lambda n: not power_of_two(n)
    low, high = min(bad), max(bad)
    if low - 1 in tried:
        yield f"is at least {low}", lambda n: n >= low
    if high + 1 in tried:
        yield f"is at most {high}", lambda n: n <= high
