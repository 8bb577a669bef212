"""Sets of lanes (threads of blocks), and the values of registers for them.

A value belongs to a set of lanes. It is a NumPy scalar (the same in all lanes) or a two-dimensional array that
broadcasts to the set's shape (threads, blocks): `(threads, 1)` if all blocks agree, `(1, blocks)` if all threads of a
block do. So most index arithmetic is not computed lane by lane. Lanes that form no rectangle are *flat*: their shape is
(lanes, 1), and each lane has its own thread and block. Arrays that are values are never written to, so they are shared
instead of copied.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Lane

Value = Any  # np.generic or a two-dimensional np.ndarray
IndexArray = npt.NDArray[np.intp]
Indices = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]
WARP, WARP_BITS = 32, 5
LANE_BITS = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).reshape(1, WARP, 1)
MAX_WARPS = 32  # per block


class Shape:
    """The extents (x, y, z) of grid and block, and the linear index of the block in each column of a wave."""

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, int, int], block_ids: IndexArray) -> None:
        self.grid, self.block, self.block_ids = grid, block, block_ids
        self.threads = block[0] * block[1] * block[2]
        self.columns = len(block_ids)
        self.warps = -(-self.threads // WARP)
        self.turns: dict[Any, list[tuple[int, Subset]]] = {}  # cache of `LaunchState.turns`

    @cached_property
    def thread_indices(self) -> Indices:
        """The thread index in x, y and z of each thread of a block."""
        return _unflattened(np.arange(self.threads), self.block)

    @cached_property
    def block_indices(self) -> Indices:
        """The block index in x, y and z of each column of the wave."""
        return _unflattened(self.block_ids, self.grid)

    def all_lanes(self) -> Lanes:
        """Return every lane of the wave."""
        return Lanes(self, np.arange(self.threads), np.arange(self.columns), False)


def _thread_index(axis: int) -> cached_property[Value]:
    return cached_property(lambda lanes: lanes.wave.thread_indices[axis][lanes.threads].reshape(-1, 1))


def _block_index(axis: int) -> cached_property[Value]:
    return cached_property(lambda lanes: lanes._of_blocks(lanes.wave.block_indices[axis]))


class Lanes:
    """An immutable set of lanes: a rectangle `threads` x `columns`, or flat pairs of both."""

    def __init__(self, wave: Shape, threads: IndexArray, columns: IndexArray, flat: bool) -> None:
        self.wave, self.threads, self.columns, self.flat = wave, threads, columns, flat
        self.shape = (len(threads), 1 if flat else len(columns))
        self.n = self.shape[0] * self.shape[1]
        self.full = self.n == wave.threads * wave.columns and not flat

    def _of_threads(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values.astype(np.uint32).reshape(-1, 1)

    def _of_blocks(self, table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the entries of the blocks in a table with one per column of the wave."""
        return table[self.columns].reshape((-1, 1) if self.flat else (1, -1))

    # the special registers of PTX, by their names there; uint32

    tid_x, tid_y, tid_z = (_thread_index(axis) for axis in range(3))
    ctaid_x, ctaid_y, ctaid_z = (_block_index(axis) for axis in range(3))

    @cached_property
    def block(self) -> Value:
        """Linear index of the block in the grid."""
        return self._of_blocks(self.wave.block_ids.astype(np.uint32))

    @cached_property
    def laneid(self) -> Value:
        """Lane in the warp."""
        return self._of_threads(self.threads % WARP)

    @cached_property
    def warpid(self) -> Value:
        """Warp in the block."""
        return self._of_threads(self.threads // WARP)

    @cached_property
    def threads_key(self) -> bytes:
        """A key that identifies the rows of a rectangle."""
        return self.threads.tobytes()

    @cached_property
    def each(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """The thread, column and number of each lane, flattened."""
        if self.flat:
            return self.threads, self.columns, np.arange(self.n)
        thread = np.broadcast_to(self.threads.reshape(-1, 1), self.shape).ravel()
        return thread, np.broadcast_to(self.column, self.shape).ravel(), np.arange(self.n)

    @cached_property
    def column(self) -> IndexArray:
        """The wave's column of each lane, broadcastable to the shape."""
        return self.columns.reshape((-1, 1) if self.flat else (1, -1))

    @property
    def cells(self) -> tuple[IndexArray, IndexArray]:
        """The index of the lanes in a table (threads, columns) of the wave."""
        return self.threads.reshape(-1, 1), self.column

    @cached_property
    def warps_of_grid(self) -> npt.NDArray[np.uint64]:
        """The number of each lane's warp, 32 per block of the grid; has the shape of the lanes."""
        warps = (self.threads >> WARP_BITS).reshape(-1, 1) + self.wave.block_ids[self.column] * MAX_WARPS
        return np.asarray(warps.astype(np.uint64))

    @cached_property
    def position(self) -> IndexArray:
        """The flat index of each lane in the wave's (threads, columns) grid; has the shape of the lanes."""
        return self.threads.reshape(-1, 1) * self.wave.columns + self.column

    def first(self, by_block: bool) -> npt.NDArray[np.bool_]:
        """Return a mask of the first lane of the first block, or of the first block that has the first thread."""
        mask = np.zeros(self.shape, np.bool_)
        at = (self.columns * self.wave.threads + self.threads).argmin() if self.flat and by_block else 0
        mask[at, 0] = True
        return mask

    @cached_property
    def all_columns(self) -> bool:
        """True if the lanes are a rectangle with every block of the wave, in order."""
        return not self.flat and len(self.columns) == self.wave.columns

    @cached_property
    def whole_warps(self) -> bool:
        """True if the lanes are a rectangle of neighbouring warps with all 32 lanes of each."""
        size, first = len(self.threads), int(self.threads[0]) if len(self.threads) else 0
        aligned = not self.flat and size > 0 and not (size % WARP or first % WARP)
        return aligned and int(self.threads[-1]) - first == size - 1

    @cached_property
    def warp_starts(self) -> IndexArray:
        """The first row of each warp in a rectangle."""
        threads = self.threads
        if threads[0] // WARP == threads[-1] // WARP:
            return np.zeros(1, np.intp)
        if self.whole_warps:
            return np.arange(0, len(threads), WARP)
        return starts_of(threads >> WARP_BITS)

    @cached_property
    def all_starts(self) -> IndexArray:
        """The first index of each warp in a rectangle with its lanes in order block by block."""
        blocks = np.arange(len(self.columns)).reshape(-1, 1)
        return (blocks * len(self.threads) + self.warp_starts).reshape(-1)

    @cached_property
    def by_block(self) -> tuple[IndexArray, IndexArray]:
        """The order of flat lanes by block, then by thread, and the first index of each warp in that order."""
        pitch = self.wave.warps * WARP
        places, index = self.columns * pitch + self.threads, np.empty(pitch * self.wave.columns, np.intp)
        here = np.zeros(len(index), np.bool_)
        here[places], index[places] = True, np.arange(self.n)
        ordered = here.nonzero()[0]
        return index[ordered], starts_of(ordered >> WARP_BITS)

    @cached_property
    def warp_numbers(self) -> IndexArray:
        """The number of each lane's warp among those in the set, block by block; has the shape of the lanes."""
        if self.flat:  # a lane may be in the set more than once
            cells = self.columns * self.wave.warps + (self.threads >> WARP_BITS)
            return np.unique(cells, return_inverse=True)[1].reshape(-1, 1)
        begins = np.zeros(len(self.threads), np.intp)
        begins[self.warp_starts[1:]] = 1
        return begins.cumsum().reshape(-1, 1) + np.arange(len(self.columns)) * len(self.warp_starts)

    @cached_property
    def warp_cells(self) -> IndexArray:
        """The flat index of each warp that has a lane in the set, in the wave's (warps, columns) grid."""
        if self.flat:
            here = np.zeros(self.wave.warps * self.wave.columns, np.bool_)
            here[(self.threads >> WARP_BITS) * self.wave.columns + self.columns] = True
            return here.nonzero()[0]
        warps = self.threads[self.warp_starts] >> WARP_BITS
        return (warps.reshape(-1, 1) * self.wave.columns + self.columns).reshape(-1)

    def in_block(self, column: int) -> int:
        """Return the number of lanes in one block."""
        count = int(np.count_nonzero(self.columns == column))
        return count if self.flat else count * len(self.threads)

    @cached_property
    def warp_count(self) -> int:
        """The number of warps that have a lane in the set."""
        return len(self.warp_cells) if self.flat else len(self.warp_starts) * len(self.columns)

    def shared_keys(self, address: Value) -> npt.NDArray[np.int64]:
        """Return a key per lane that identifies a shared memory address of its block; has the shape of the lanes."""
        return np.broadcast_to(address.astype(np.int64) * self.wave.columns + self.column, self.shape)

    def alike(self, value: Value) -> bool:
        """Return True if every block of the wave has these lanes, with the same value."""
        return self.all_columns and (value.ndim == 0 or value.shape[1] == 1)

    def agree(self, value: Value) -> bool:
        """Return True if the shape of a value implies that all lanes of a block have the same."""
        return bool(value.ndim == 0 or value.shape[0] == 1)

    @cached_property
    def _index(self) -> IndexArray:
        """The index in this set of each position of the wave; undefined for lanes outside of the set."""
        index = np.empty(self.wave.threads * self.wave.columns, np.intp)
        index[self.position.ravel()] = np.arange(self.n)
        return index

    def locate(self, other: Lanes) -> Subset:
        """Return other lanes, all of which are in this set, as a subset."""
        if self.flat or other.flat:
            return Subset(self.shape, other, flat=self._index[other.position.ravel()])
        rows = columns = None
        if len(other.threads) != len(self.threads):
            rows = np.searchsorted(self.threads, other.threads)
        if len(other.columns) != len(self.columns):
            columns = np.searchsorted(self.columns, other.columns)
        return Subset(self.shape, other, rows, columns)

    def subset(self, where: npt.NDArray[np.bool_]) -> Subset:
        """Return the lanes where a mask is True; the mask has the shape of the lanes or broadcasts to it."""
        where = _reduced(where)
        if where.shape[1] == 1 and (where.shape[0] == self.shape[0] or self.flat):
            rows = np.flatnonzero(where)
            columns = self.columns[rows] if self.flat else self.columns
            return Subset(self.shape, Lanes(self.wave, self.threads[rows], columns, self.flat), rows)
        if where.shape[0] == 1:
            chosen = np.flatnonzero(where)
            return Subset(self.shape, Lanes(self.wave, self.threads, self.columns[chosen], False), None, chosen)
        index = np.flatnonzero(where)
        rows, chosen = np.divmod(index, self.shape[1])
        lanes = Lanes(self.wave, self.threads[rows], self.columns[chosen], True)
        return Subset(self.shape, lanes, flat=index)

    def crossing(self, of_threads: npt.NDArray[np.bool_], of_columns: npt.NDArray[np.bool_]) -> Subset:
        """Return the lanes of some threads in some blocks; both masks have one entry per row, or per column."""
        if self.flat:
            return self.subset((of_threads & of_columns).reshape(-1, 1))
        rows, columns = np.flatnonzero(of_threads), np.flatnonzero(of_columns)
        return Subset(self.shape, Lanes(self.wave, self.threads[rows], self.columns[columns], False), rows, columns)


def _reduced(where: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask with one column if all its columns are equal, or one row if all its rows are."""
    if 1 in where.shape:
        return where
    # bytes are compared first: most masks differ there, and it takes a fraction of a NumPy call
    if where[:, 0].tobytes() == where[:, -1].tobytes() and (where == where[:, :1]).all():
        return where[:, :1]
    if where[0].tobytes() == where[-1].tobytes() and (where == where[:1]).all():
        return where[:1]
    return where


def starts_of(values: npt.NDArray[Any]) -> IndexArray:
    """Return the indices of values that differ from the value before, and index 0."""
    new = np.empty(len(values), np.bool_)
    new[0] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new.nonzero()[0]


class Subset:
    """Some lanes of a set, and their indices in it."""

    def __init__(
        self,
        shape: tuple[int, int],
        lanes: Lanes,
        rows: IndexArray | None = None,
        columns: IndexArray | None = None,
        flat: IndexArray | None = None,
    ) -> None:
        self.shape, self.lanes, self.rows, self.columns, self.flat = shape, lanes, rows, columns, flat

    @cached_property
    def _places(self) -> tuple[IndexArray, IndexArray]:
        """The row and the column of each lane in the set, if the lanes are flat."""
        assert self.flat is not None
        return np.divmod(self.flat, self.shape[1]) if self.shape[1] > 1 else (self.flat, np.zeros_like(self.flat))

    def take(self, value: Value) -> Value:
        """Return the part of a value that belongs to the subset."""
        if value.ndim == 0:
            return value
        if self.flat is not None:
            if value.shape == self.shape:
                return value.ravel().take(self.flat).reshape(-1, 1)
            if value.shape[1] == 1:
                return value[self._places[0]] if value.shape[0] > 1 else value
            return value.ravel().take(self._places[1]).reshape(-1, 1)
        if self.rows is not None and value.shape[0] > 1:
            value = value.take(self.rows, axis=0)
        if self.columns is not None and value.shape[1] > 1:
            value = value.take(self.columns, axis=1)
        return value


def to_warps(lanes: Lanes, value: Value, fill: Any) -> npt.NDArray[Any]:
    """Return a value as (warps, 32, blocks), with `fill` for lanes outside of the set.

    The last axis has length 1 if the lanes are a rectangle and its blocks agree.
    """
    wave = lanes.wave
    if lanes.flat or (value.ndim == 2 and value.shape[1] > 1):
        width = wave.columns
    else:
        width = 1
    grid = np.full((wave.warps * WARP, width), fill, value.dtype)
    if not lanes.flat and (width == 1 or lanes.all_columns):
        grid[lanes.threads] = value
    else:
        grid[lanes.cells] = value
    return grid.reshape(wave.warps, WARP, width)


def from_warps(lanes: Lanes, grid: npt.NDArray[Any]) -> Value:
    """Return the value of some lanes from a (warps, 32 or 1, blocks) array; the inverse of `to_warps`."""
    wave = lanes.wave
    width = grid.shape[2]
    if grid.shape[1] == 1:  # one value per warp
        grid = grid.repeat(WARP, axis=1)
    flat = grid.reshape(wave.warps * WARP, width)
    if lanes.flat:
        return flat[lanes.threads, lanes.columns if width > 1 else 0].reshape(-1, 1)
    if width == 1 or lanes.all_columns:
        return flat[lanes.threads]
    return flat[lanes.cells]


def as_bits(lanes: Lanes, grid: npt.NDArray[np.bool_]) -> Value:
    """Return a bit per lane of each lane's warp from a mask (warps, 32, blocks)."""
    return from_warps(lanes, (grid * LANE_BITS).sum(axis=1, keepdims=True, dtype=np.uint32))


def lane_at(lanes: Lanes, flat_index: int) -> Lane:
    """Return block and thread of a lane, by its index in the flattened group shape."""
    row, column = divmod(flat_index, lanes.shape[1])
    thread = int(lanes.threads[row])
    block = int(lanes.wave.block_ids[lanes.columns[row if lanes.flat else column]])
    return lane_of(lanes.wave, block, thread)


def lane_of(wave: Shape, block: int, thread: int) -> Lane:
    """Return block and thread from the linear indices of a block and of a thread in it."""
    return Lane(_unflatten(block, wave.grid), _unflatten(thread, wave.block), (_axes(wave.grid), _axes(wave.block)))


def _axes(extents: tuple[int, int, int]) -> int:
    return max((axis for axis, extent in enumerate(extents, start=1) if extent > 1), default=1)


def _unflattened(linear: IndexArray, extents: tuple[int, int, int]) -> Indices:
    x, y, z = _unflatten(linear, extents)
    return x.astype(np.uint32), y.astype(np.uint32), z.astype(np.uint32)


def _unflatten(index: Any, extents: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    return index % extents[0], index // extents[0] % extents[1], index // (extents[0] * extents[1])


def first_lane(lanes: Lanes, bad: npt.NDArray[np.bool_] | np.bool_) -> Lane:
    """Return the lane of the lowest block, then of the lowest thread, where a mask is True."""
    return lane_at(lanes, first_index(lanes, bad))


def first_index(lanes: Lanes, bad: npt.NDArray[np.bool_] | np.bool_) -> int:
    """Return the index in the flattened group shape of the first lane where a mask is True."""
    index = np.flatnonzero(np.broadcast_to(bad, lanes.shape))
    row, column = np.divmod(index, lanes.shape[1])
    blocks = lanes.columns[row if lanes.flat else column]
    return int(index[np.lexsort((lanes.threads[row], blocks))[0]])
