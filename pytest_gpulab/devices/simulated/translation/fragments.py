"""How the lanes of a warp hold a matrix, and how they read it from memory: tables of indices.

A matrix consists of tiles of 8 lines. Lane 4 r + q has neighbouring elements of a tile's line r: of A and B the q-th
quarter of 16 bytes (32 of doubles), of C and D the q-th pair of 8 elements. This is the layout of `mma.sync` in the PTX
ISA, 9.7.14.5. The manual leaves that of `wmma` open; here it is the one that the assembler uses for compute
capability 9.0.

Tables refer to a matrix line by line, as its tiles lie: rows, but columns of B, and of C and D where these are wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.intp]
ELEMENTS = {"f16": "u2", "bf16": "u2", "tf32": "u4", "s8": "u1", "u8": "u1", "f64": "u8", "f32": "u4", "s32": "u4"}
"""Type of a matrix element to the NumPy code of its bits."""
LANES = 32  # of a warp
_LINES, _QUARTERS = 8, 4  # of a tile
_TILES_AT_ONCE = 4  # that a warp reads from shared memory by one instruction, 16 bytes a lane
_LANE = np.arange(LANES)


@dataclass(frozen=True)
class Fragment:
    """The part of a matrix instruction's operand that all lanes hold together.

    Attributes:
        matrix: `a`, `b`, `c` or `d`.
        shape: of the instruction, such as `m16n8k16`.
        kind: PTX type of an element.
    """

    matrix: str
    shape: str
    kind: str

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        return int(ELEMENTS[self.kind][1])

    @property
    def register(self) -> str:
        """NumPy code of a register."""
        return "u8" if self.nbytes == 8 else "u4"

    @property
    def elements(self) -> int:
        """Elements of a register."""
        return int(self.register[1]) // self.nbytes

    @property
    def registers(self) -> int:
        """Registers of a lane without repetitions."""
        return self.lines * self.length // LANES // self.elements

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns."""
        m, n, k = map(int, re.findall(r"\d+", self.shape))
        return {"a": (m, k), "b": (k, n)}.get(self.matrix, (m, n))

    @property
    def by_columns(self) -> bool:
        """Whether its lines are columns; a wide C or D is computed as that of the transposed product."""
        return self.matrix == "b" or (self.matrix in "cd" and self.shape == "m8n32k16")

    @property
    def lines(self) -> int:
        """Rows or columns."""
        return self.extents[self.by_columns]

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.extents[not self.by_columns]

    @property
    def neighbours(self) -> int:
        """Neighbouring elements of a line that a lane has."""
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
    """How a warp reads or writes a matrix in memory.

    Attributes:
        active: lanes that take part, the first ones.
        lines, starts: for each lane and access, the line in memory and the first element in it.
        count: neighbouring elements of an access.
        index: for each lane and element, its place in the matrix; of idle lanes meaningless.
    """

    active: int
    lines: IndexArray
    starts: IndexArray
    count: int
    index: IndexArray


@lru_cache(maxsize=256)
def places(fragment: Fragment) -> IndexArray:
    """Return the place in the matrix of each element that a lane holds, as (lanes, elements)."""
    within = np.arange(fragment.neighbours)
    found = [
        (line + _LANE[:, None] // _QUARTERS) * fragment.length
        + left + _LANE[:, None] % _QUARTERS * fragment.neighbours + within
        for line, left in fragment.tiles()
    ]  # fmt: skip
    return np.concatenate(found, axis=1)


def inverted(index: IndexArray, size: int) -> IndexArray:
    """Return for each of `size` places where a table, flattened, has it."""
    found = np.zeros(size, np.intp)
    found[index.ravel()] = np.arange(index.size)
    return found


@lru_cache(maxsize=256)
def accesses(fragment: Fragment, layout: str, in_shared: bool) -> Accesses:
    """Return how the assembler for compute capability 9.0 reads or writes a matrix.

    Args:
        fragment: what is read or written.
        layout: in memory, `row` or `col`.
        in_shared: whether it is known to be in shared memory.
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
    """Let each lane read a line of a tile, as `ldmatrix` does; return its line and start, and the lanes that do."""
    at_once = min(len(corners), _TILES_AT_ONCE)
    groups = [corners[i : i + at_once] for i in range(0, len(corners), at_once)]
    tile = _LANE // _LINES % at_once
    lines = [np.array([line for line, _ in group])[tile] + _LANE % _LINES for group in groups]
    starts = [np.array([start for _, start in group])[tile] for group in groups]
    return np.stack(lines, axis=1), np.stack(starts, axis=1), _LINES * at_once


def _one_by_one(fragment: Fragment) -> Accesses:
    """A lane's elements are no neighbours in memory."""
    index = places(fragment)
    return Accesses(LANES, index % fragment.length, index // fragment.length, 1, index)


@lru_cache(maxsize=256)
def loaded(fragment: Fragment, layout: str, in_shared: bool) -> IndexArray:
    """Return where each element that a lane holds is among those that lanes have read, as (lanes, elements)."""
    asked = accesses(fragment, layout, in_shared)
    where = np.zeros(fragment.lines * fragment.length, np.intp)
    where[asked.index[: asked.active].ravel()] = np.arange(asked.index[: asked.active].size)
    return where[places(fragment)]


@lru_cache(maxsize=256)
def stored(fragment: Fragment, layout: str) -> IndexArray:
    """Return where each element that a lane writes is among those that lanes hold, as (lanes, elements)."""
    held = inverted(places(fragment), fragment.lines * fragment.length)
    return held[accesses(fragment, layout, False).index]


@lru_cache(maxsize=16)
def lines_of_tiles(tiles: int, transposed: bool) -> IndexArray:
    """Return where each element of `ldmatrix` is among those that lanes have read, 8 of 16 bits each."""
    line, first = _LANE[:, None] // _QUARTERS, _LANE[:, None] % _QUARTERS * 2
    pair = first + np.arange(2)
    one = pair * _LINES + line if transposed else line * _LINES + pair
    return np.concatenate([one + tile * _LINES * _LINES for tile in range(tiles)], axis=1)
