"""Tables of indices: the elements of a matrix per lane of a warp, and their places in memory.

A matrix consists of tiles of 8 lines. Lane 4 r + q has neighbouring elements of a tile's line r. Of A and B, they are
the q-th quarter of 16 bytes (32 for doubles); of C and D, the q-th pair of 8 elements. This is the layout of
`mma.sync` in the PTX ISA, 9.7.14.5. The manual does not define the layout of `wmma`; this is the assembler's for
compute capability 9.0.

Tables number the elements of a matrix line by line. Lines are rows, but columns of B, and of a wide C or D.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.intp]
ELEMENTS = {"f16": "u2", "bf16": "u2", "tf32": "u4", "s8": "u1", "u8": "u1", "f64": "u8", "f32": "u4", "s32": "u4"}
"""NumPy code of a matrix element's bits by its type."""
LANES = 32  # of a warp
_LINES, _QUARTERS = 8, 4  # of a tile
_TILES_AT_ONCE = 4  # that a warp reads from shared memory with one instruction, 16 bytes per lane
_LANE = np.arange(LANES)


@dataclass(frozen=True)
class Fragment:
    """An operand of a matrix instruction, distributed over the lanes of a warp."""

    matrix: str  # `a`, `b`, `c` or `d`
    shape: str  # shape of the instruction, such as `m16n8k16`
    kind: str  # PTX type of an element

    @property
    def nbytes(self) -> int:
        """Bytes per element."""
        return int(ELEMENTS[self.kind][1])

    @property
    def register(self) -> str:
        """The NumPy code of a register."""
        return "u8" if self.nbytes == 8 else "u4"

    @property
    def elements(self) -> int:
        """Elements per register."""
        return int(self.register[1]) // self.nbytes

    @property
    def registers(self) -> int:
        """Registers per lane, without repetitions."""
        return self.lines * self.length // LANES // self.elements

    @property
    def extents(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        m, n, k = map(int, re.findall(r"\d+", self.shape))
        return {"a": (m, k), "b": (k, n)}.get(self.matrix, (m, n))

    @property
    def by_columns(self) -> bool:
        """True if its lines are columns. A wide C or D belongs to the transposed product, so its lines are columns."""
        return self.matrix == "b" or (self.matrix in "cd" and self.shape == "m8n32k16")

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.extents[self.by_columns]

    @property
    def length(self) -> int:
        """Elements per line."""
        return self.extents[not self.by_columns]

    @property
    def neighbours(self) -> int:
        """Neighbouring elements of a line per lane."""
        return self.elements if self.matrix in "ab" else 2

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yield the first line and the first element of each tile, in the order of the registers."""
        at_once = _LINES if self.matrix == "b" else 2 * _LINES
        for top in range(0, self.lines, at_once):
            for left in range(0, self.length, _QUARTERS * self.neighbours):
                for line in range(top, min(top + at_once, self.lines), _LINES):
                    yield line, left


@dataclass(frozen=True)
class Accesses:
    """The accesses of a warp to a matrix in memory."""

    active: int  # number of participating lanes, which are the first ones
    lines: IndexArray  # per lane and access, the line in memory
    starts: IndexArray  # per lane and access, its first element in the line
    count: int  # neighbouring elements per access
    index: IndexArray  # per lane and element, the place in the matrix; undefined for idle lanes


@lru_cache(maxsize=256)
def places(fragment: Fragment) -> IndexArray:
    """Return the place in the matrix of each element in a lane's registers, as (lanes, elements)."""
    within = np.arange(fragment.neighbours)
    found = [
        (line + _LANE[:, None] // _QUARTERS) * fragment.length
        + left + _LANE[:, None] % _QUARTERS * fragment.neighbours + within
        for line, left in fragment.tiles()
    ]  # fmt: skip
    return np.concatenate(found, axis=1)


def inverted(index: IndexArray, size: int) -> IndexArray:
    """Return the inverse of a flattened table: the position of each of `size` places in it."""
    found = np.zeros(size, np.intp)
    found[index.ravel()] = np.arange(index.size)
    return found


@lru_cache(maxsize=256)
def accesses(fragment: Fragment, layout: str, in_shared: bool) -> Accesses:
    """Return the accesses by which the assembler for compute capability 9.0 reads or writes a matrix in memory.

    The layout is `row` or `col`. `in_shared` is True if the address is known to be in shared memory.
    """
    along = layout == ("col" if fragment.by_columns else "row")
    if not along and fragment.nbytes != 2:
        return _one_by_one(fragment)
    lines, length = (fragment.lines, fragment.length) if along else (fragment.length, fragment.lines)
    width = _QUARTERS * fragment.neighbours
    corners = [(line, start) for line in range(0, lines, _LINES) for start in range(0, length, width)]
    if in_shared and fragment.matrix in "ab" and fragment.nbytes <= 2:
        lane_lines, starts, active, count = *_whole_lines(corners), width
    else:
        lane_lines = np.stack([line + _LANE // _QUARTERS for line, _ in corners], axis=1)
        starts = np.stack([start + _LANE % _QUARTERS * fragment.neighbours for _, start in corners], axis=1)
        active, count = LANES, fragment.neighbours
    elements = starts[..., None] + np.arange(count)
    index = lane_lines[..., None] * length + elements if along else elements * lines + lane_lines[..., None]
    return Accesses(active, lane_lines, starts, count, index.reshape(LANES, -1))


def _whole_lines(corners: list[tuple[int, int]]) -> tuple[IndexArray, IndexArray, int]:
    """Return lines, starts and the number of active lanes for one line of a tile per lane, as in `ldmatrix`."""
    at_once = min(len(corners), _TILES_AT_ONCE)
    groups = [corners[i : i + at_once] for i in range(0, len(corners), at_once)]
    tile = _LANE // _LINES % at_once
    lines = [np.array([line for line, _ in group])[tile] + _LANE % _LINES for group in groups]
    starts = [np.array([start for _, start in group])[tile] for group in groups]
    return np.stack(lines, axis=1), np.stack(starts, axis=1), _LINES * at_once


def _one_by_one(fragment: Fragment) -> Accesses:
    """Return one access per element: the elements of a lane are not neighbours in memory."""
    index = places(fragment)
    return Accesses(LANES, index % fragment.length, index // fragment.length, 1, index)


@lru_cache(maxsize=256)
def loaded(fragment: Fragment, layout: str, in_shared: bool) -> IndexArray:
    """Return the position of each element of a lane among the elements read, as (lanes, elements)."""
    read = accesses(fragment, layout, in_shared)
    return inverted(read.index[: read.active], fragment.lines * fragment.length)[places(fragment)]


@lru_cache(maxsize=256)
def stored(fragment: Fragment, layout: str) -> IndexArray:
    """Return the position of each element to write among the elements in registers, as (lanes, elements)."""
    held = inverted(places(fragment), fragment.lines * fragment.length)
    return held[accesses(fragment, layout, False).index]


@lru_cache(maxsize=16)
def lines_of_tiles(tiles: int, transposed: bool) -> IndexArray:
    """Return the position of each element of `ldmatrix` among the elements read: 8 of 16 bits per lane."""
    line, first = _LANE[:, None] // _QUARTERS, _LANE[:, None] % _QUARTERS * 2
    pair = first + np.arange(2)
    one = pair * _LINES + line if transposed else line * _LINES + pair
    return np.concatenate([one + tile * _LINES * _LINES for tile in range(tiles)], axis=1)
