"""The footprint of blocks in global memory: sectors read and written, and contended atomics."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import PIECE_BYTES, Allocation, Arena
from pytest_gpulab.devices.simulated.translation.sites import Site

SECTOR_BYTES = 32  # the unit of transfers between L1 and L2
_WORDS = SECTOR_BYTES // 4
# a key consists of block number, warp number and sector, from high to low bits
_SECTOR_BITS, _WARP_BITS = 40, 5
_SECTORS = np.uint64((1 << _SECTOR_BITS) - 1)
_WARPS = np.uint64(((1 << _WARP_BITS) - 1) << _SECTOR_BITS)
_PIECE = PIECE_BYTES.bit_length() - 1  # address bits within a piece of the address space
_COMPACTED = 1 << 18  # keys between compactions
_MOST = 1 << 20  # first reads, about 150 bytes each while they are sorted
_SPREAD = 16  # range over number of keys, up to which marking is faster than sorting

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


class Seen:
    """A growing set of keys."""

    def __init__(self) -> None:
        self._parts: list[Keys] = []
        self._pending, self._kept = 0, 0

    def add(self, keys: Keys) -> None:
        """Add keys, with or without duplicates."""
        self._parts.append(keys)
        self._pending += len(keys)
        if self._pending > max(_COMPACTED, self._kept):
            self.distinct()

    def distinct(self) -> Keys:
        """Return the distinct keys in order."""
        if len(self._parts) != 1 or self._pending:
            self._parts = [_distinct(np.concatenate([np.zeros(0, np.uint64), *self._parts]))]
        self._pending, self._kept = 0, len(self._parts[0])
        return self._parts[0]


def _distinct(keys: Keys) -> Keys:
    """Return distinct keys in order: by marking if they are dense, which is faster, else by sorting."""
    low = keys.min(initial=_SECTORS)
    if len(keys) and int(keys.max() - low) < max(_SPREAD * len(keys), _COMPACTED):
        marked = np.zeros(int(keys.max() - low) + 1, np.bool_)
        marked[(keys - low).astype(np.intp)] = True
        return np.asarray(np.flatnonzero(marked).astype(np.uint64) + low)
    ordered = np.sort(keys)  # np.unique hashes, which is many times slower if most keys differ
    fresh = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


class FirstReads:
    """The warps that read a sector at the first time that their block does; all of them wait for it."""

    def __init__(self) -> None:
        self._keys: list[Keys] = []
        self._times: list[Keys] = []
        self._pending, self._kept = 0, 0

    @property
    def is_full(self) -> bool:
        """True if more keys would take too much memory."""
        return self._kept > _MOST

    def add(self, keys: Keys, time: int) -> None:
        """Add the reads of one time, with block, warp and sector in the key; times never decrease."""
        self._keys.append(keys)
        self._times.append(np.full(len(keys), time, np.uint64))
        self._pending += len(keys)
        if self._pending > max(_COMPACTED, self._kept):
            self.keys()

    def keys(self) -> Keys:
        """Return the distinct keys of first reads."""
        if self._pending:
            keys, times = np.concatenate(self._keys), np.concatenate(self._times)
            _, first, where = np.unique(keys & ~_WARPS, return_index=True, return_inverse=True)
            is_first = times == times[first][where]  # earlier reads come first
            keys, index = np.unique(keys[is_first], return_index=True)
            self._keys, self._times = [keys], [times[is_first][index]]
            self._pending, self._kept = 0, len(keys)
        return self._keys[0] if self._keys else np.zeros(0, np.uint64)

    def waits(self) -> Keys:
        """Return block and warp for each time at which a warp has first reads."""
        return np.asarray(_distinct(self._waits()) & np.uint64((1 << (64 - _SECTOR_BITS)) - 1))

    def _waits(self) -> Keys:
        """Return time, block and warp of each first read."""
        warps = self.keys() >> np.uint64(_SECTOR_BITS)
        return np.asarray(warps | self._times[0] << np.uint64(64 - _SECTOR_BITS)) if self._times else warps

    def shares_from_memory(self, fetched: float, further: int, ends: Sequence[int]) -> tuple[float, float]:
        """Return the share of waits for memory: of those that read a pair of sectors for the first time in their block.

        Warps that read both sectors of a pair at once wait equally. A wait takes as long as that for its slowest pair.
        `fetched` pairs come from memory; `further` reads are not in the set. The first share counts one wait per pair.
        The second one is that of blocks in step: those that read a pair at the same time all wait for it.
        `ends` are the times at which batches of blocks ended.
        """
        keys, waits = self.keys() >> np.uint64(1), self._waits()
        if not len(keys):
            return 0.0, 0.0
        pairs, where = np.unique(keys & ~(_WARPS >> np.uint64(1)), return_inverse=True)
        earliest = np.full(len(pairs), self._times[0].max())
        np.minimum.at(earliest, where, self._times[0])
        new = self._times[0] == earliest[where]
        new_waits = len(_distinct(waits[new]))
        share = min(fetched / (len(pairs) + further / 2), 1.0)
        in_step = share + (1 - share) * _together(pairs & (_SECTORS >> np.uint64(1)), earliest, ends)
        reads = len(_distinct(keys[new])) / new_waits
        of_new = new_waits / len(_distinct(waits))
        return float(of_new * (1 - (1 - share) ** reads)), float(of_new * (1 - (1 - in_step) ** reads))


def _together(pairs: Keys, times: Keys, ends: Sequence[int]) -> float:
    """Return the share of reads of a pair at the time of its first read in a batch, of all but the first."""
    of_batch = pairs | np.searchsorted(ends, times).astype(np.uint64) << np.uint64(_SECTOR_BITS)
    distinct, where = np.unique(of_batch, return_inverse=True)
    first = np.full(len(distinct), times.max())
    np.minimum.at(first, where, times)
    further = len(pairs) - len(distinct)
    return (int((times == first[where]).sum()) - len(distinct)) / further if further else 0.0


@dataclass(frozen=True)
class Touched:
    """The footprint of the blocks that ran in one array."""

    nbytes: int  # the array's size
    read: int  # distinct sectors read per block, summed over blocks
    fetched: int  # distinct pairs of sectors with at least one read
    written: int  # distinct sectors written
    written_pairs: int  # distinct pairs of sectors with at least one write
    filled: float  # bytes written over the bytes of the written sectors; at most 1


class Footprint:
    """The footprint of a launch; see the module's docstring."""

    def __init__(self) -> None:
        self._reads, self._writes = FirstReads(), Seen()
        self.batch_ends: list[int] = []  # times at which batches of blocks ended
        # by piece of the address space
        self._written_bytes: dict[int, int] = {}
        self._last_reads: dict[int, Keys] = {}
        # after the set of first reads is full
        self._further_reads: dict[int, int] = {}
        self._further_waits: Counter[int] = Counter()
        self._further, self._waiting, self._time = Seen(), set[int](), 0
        self._met_pending = 0
        self._met: list[tuple[Keys, Counts]] = [(np.zeros(0, np.uint64), np.zeros((3, 0), np.int64))]

    def access(self, lanes: Lanes, site: Site, address: Value, time: int) -> None:
        """Add an access of a group; accesses of one region of code have the same time."""
        keys, piece = _keys(lanes, address), int(address.min()) >> _PIECE
        if not site.modifies:
            self._read(keys, time, piece)
        else:
            self._writes.add(keys & _SECTORS)
            if site.access != "atomic":
                self._stores(keys)
            self._written_bytes[piece] = self._written_bytes.get(piece, 0) + lanes.n * site.nbytes

    def _read(self, keys: Keys, time: int, piece: int) -> None:
        """Add reads. After `_MOST` keys, every read counts as the first one of its sector and block."""
        if self._reads.is_full:
            self._further.add(keys & _SECTORS)
            self._further_reads[piece] = self._further_reads.get(piece, 0) + len(keys)
            if time != self._time:
                self._waiting, self._time = set(), time
            waiting = set(_distinct(keys >> np.uint64(_SECTOR_BITS)).tolist()) - self._waiting
            self._further_waits.update(waiting)
            self._waiting |= waiting
        elif not np.array_equal(keys, self._last_reads.get(piece, ())):  # in loops, often the same sectors again
            self._last_reads[piece] = keys
            self._reads.add(keys, time)

    def atomics(self, rows: npt.NDArray[np.int64], repeat: int, floats: bool) -> None:
        """Add atomics; each row has the addresses of one warp and represents `repeat` warps.

        In each sector, lanes at one address are serialised, and lanes at different addresses run together.
        """
        row, lane = np.nonzero(rows >= 0)
        address = rows[row, lane]
        order = np.lexsort((address, row))
        row, address = row[order], address[order]
        starts = np.flatnonzero(np.concatenate(([True], (row[1:] != row[:-1]) | (address[1:] != address[:-1]))))
        met, sector = np.diff(np.append(starts, len(row))), (address >> 5)[starts]
        of_sector = np.concatenate(([True], (row[starts][1:] != row[starts][:-1]) | (sector[1:] != sector[:-1])))
        passes = np.maximum.reduceat(met, np.flatnonzero(of_sector))
        counts = passes * repeat
        self._meet(sector[of_sector], counts, counts * floats, 0 * counts)

    def _stores(self, keys: Keys) -> None:
        """Add a plain store if it has more warps than words: the L2 cache serialises them."""
        sectors = keys & _SECTORS
        if _WORDS * (int(sectors.max() - sectors.min()) + 1) < len(keys):
            sectors, warps = np.unique(_distinct(keys) & _SECTORS, return_counts=True)
            self._meet(sectors, 0 * warps, 0 * warps, warps)

    def _meet(self, sectors: Keys | Counts, *passes: Counts) -> None:
        self._met.append((sectors.astype(np.uint64), np.array(passes)))
        self._met_pending += len(sectors)
        if self._met_pending > _COMPACTED:
            self._met, self._met_pending = [self.met()], 0

    def meet(self, addresses: npt.NDArray[np.int64], passes: npt.NDArray[np.float64]) -> None:
        """Add further passes of atomics at some addresses."""
        whole = np.diff(np.floor(np.cumsum(passes)), prepend=0.0).astype(np.int64)
        self._meet(addresses >> 5, whole, 0 * whole, 0 * whole)

    def met(self) -> tuple[Keys, Counts]:
        """Return the contended sectors in order, and passes in rows: of atomics, of those on floats, and of stores."""
        keys, passes = (np.concatenate(parts, axis=-1) for parts in zip(*self._met, strict=True))
        sectors, where = np.unique(keys, return_inverse=True)
        return sectors, np.array([np.bincount(where, row) for row in passes]).astype(np.int64)

    def met_in(self, arena: Arena) -> tuple[Keys, Counts]:
        """Return `met` as if each array began with a piece of the address space: no estimate depends on chance."""
        sectors, passes = self.met()
        for allocation in list(_arrays(sectors, arena)):
            low, high = _sectors_of(allocation)
            inside = (sectors >= low) & (sectors <= high)
            sectors[inside] -= np.uint64(allocation.base % PIECE_BYTES // SECTOR_BYTES)
        return sectors, passes

    def waits(self) -> tuple[Keys, Keys, Counts]:
        """Return blocks, warps and their numbers of waits for sectors that their blocks have not read before."""
        keys, counts = np.unique(self._reads.waits(), return_counts=True)
        further = np.array(list(self._further_waits.items()), np.uint64).reshape(-1, 2)
        keys, counts = np.append(keys, further[:, 0]), np.append(counts, further[:, 1].astype(np.int64))
        return keys >> np.uint64(_WARP_BITS), keys & np.uint64((1 << _WARP_BITS) - 1), counts

    def shares_from_memory(self, fetched: float) -> tuple[float, float]:
        """Return shares of waits for memory, if the blocks that ran fetched a number of pairs of sectors from it.

        The second share is that of blocks in step.
        """
        return self._reads.shares_from_memory(fetched, sum(self._further_reads.values()), self.batch_ends)

    @property
    def touched_sectors(self) -> int:
        """The number of distinct sectors read or written."""
        reads = (self._reads.keys(), self._further.distinct())
        return len(_distinct(np.concatenate((*reads, self._writes.distinct())) & _SECTORS))

    def touched(self, arena: Arena) -> list[Touched]:
        """Return the footprint in each array."""
        reads, writes = (_distinct(keys & ~_WARPS) for keys in (self._reads.keys(), self._writes.distinct()))
        found = []
        for allocation in _arrays(_distinct(np.concatenate((reads, writes)) & _SECTORS), arena):
            read, written = _within(reads, allocation), _distinct(_within(writes, allocation))
            further, pairs = _of_array(self._further_reads, allocation), -(-allocation.nbytes // (2 * SECTOR_BYTES))
            filled = _of_array(self._written_bytes, allocation) / max(len(written) * SECTOR_BYTES, 1)
            found.append(
                Touched(
                    allocation.nbytes,
                    len(read) + further,
                    min(_pairs(read) + -(-further // 2), max(_pairs(read), pairs)),
                    len(written),
                    _pairs(written),
                    min(filled, 1.0),
                )
            )
        return found


def _keys(lanes: Lanes, address: Value) -> Keys:
    """Return the keys of an access, without most duplicates."""
    sectors = address.astype(np.uint64) >> np.uint64(5)
    if lanes.agree(address) and not lanes.flat:
        return np.asarray(sectors | lanes.warps_of_grid[lanes.warp_starts] << np.uint64(_SECTOR_BITS)).reshape(-1)
    keys = np.broadcast_to(sectors | lanes.warps_of_grid << np.uint64(_SECTOR_BITS), lanes.shape)
    fresh = np.ones(lanes.shape, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return np.asarray(keys[fresh])


def _of_array(counts: dict[int, int], allocation: Allocation) -> int:
    """Return the sum of counts over the pieces of the address space in an array."""
    first, last = allocation.base >> _PIECE, (allocation.base + max(allocation.nbytes, 1) - 1) >> _PIECE
    return sum(count for piece, count in counts.items() if first <= piece <= last)


def _pairs(sectors: Keys) -> int:
    return len(_distinct(sectors >> np.uint64(1)))


def _arrays(sectors: Keys, arena: Arena) -> Iterator[Allocation]:
    """Yield the arrays that contain sectors, which must be sorted."""
    place = 0
    while place < len(sectors):
        allocation = arena.find(int(sectors[place]) << 5)
        if allocation is None:  # the array was freed
            place += 1
            continue
        yield allocation
        place = int(np.searchsorted(sectors, _sectors_of(allocation)[1], side="right"))


def _within(keys: Keys, allocation: Allocation) -> Keys:
    """Return the sectors of keys in an array, once per block that accesses it."""
    sectors = keys & _SECTORS
    low, high = _sectors_of(allocation)
    within: Keys = sectors[(sectors >= low) & (sectors <= high)]
    return within


def _sectors_of(allocation: Allocation) -> tuple[np.uint64, np.uint64]:
    """Return the first and the last sector of an array."""
    last = allocation.base + max(allocation.nbytes, 1) - 1
    return np.uint64(allocation.base >> 5), np.uint64(last >> 5)
