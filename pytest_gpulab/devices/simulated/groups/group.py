"""Groups of lanes that share a program counter: divergence at a branch and reconvergence, with their registers.

A group that diverges is kept as the `DivergedGroup` of its children. A child stores only the registers that it has
written since (its dirty registers). It fetches others from the diverged group on the first read. When all lanes that
have not exited reconverge, the values of the diverged group are restored. So values that were uniform stay uniform.
Other groups that meet become the `Union` of their lanes and values.

Groups that spin on other threads' writes are set aside (stalled) until other groups have run. Blocks may wait for each
other in a chain: each goes on when its predecessor has. So the groups are woken again as long as lanes leave their
loops, to poll once. Otherwise each link of the chain would cost a round of all waves.

If only one lane can go on at a time, as at a lock, it is mostly the first one, and the others would poll in vain. So
only the first lane is woken once this has been seen a few times, until it does not go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .lanes import IndexArray, Lanes, Subset, Value

SPIN_LIMIT = 64  # iterations of a spinning loop before other groups run
MAX_WAKES = 1024  # in a row; threads that pass a token around may need another wave to stop them
FIRST_TURNS = 4  # wakes in a row of which one lane went on each, before only one is woken
MAX_TURNS = 16  # the same, if another lane than the woken one should have gone on; it doubles each time
NEVER = 1 << 62
Registers = list[Any]


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class DivergedGroup:
    """The lanes and registers of a group at the branch where it diverged; `remaining` lanes have not exited."""

    def __init__(self, lanes: Lanes, regs: Registers) -> None:
        self.lanes, self.regs, self.remaining = lanes, regs, lanes.n


class Group:
    """Lanes at one program counter."""

    __slots__ = ("_subset", "dirty", "lanes", "loops", "origin", "regs", "tag")

    def __init__(
        self, lanes: Lanes, regs: Registers, origin: DivergedGroup | None = None, dirty: int = 0, tag: int = 0
    ) -> None:
        self.lanes = lanes
        self.regs = regs  # values by register index; None where the diverged group holds the value
        self.origin = origin  # the diverged group of which this is a child, None if it is no child
        self.dirty = dirty  # bit set of the registers written since the divergence
        self.tag = tag  # groups of different tags reconverge only at block barriers (schedules other than lockstep)
        self.loops = 0  # number of back edges taken in loops that may be waiting
        self._subset: Subset | None = None

    def fetch(self, register: int) -> Value:
        """Copy a register from the diverged group, and return its value."""
        assert self.origin is not None, f"register {register} was never written"
        if self._subset is None:
            self._subset = self.origin.lanes.locate(self.lanes)
        value = self.regs[register] = self._subset.take(self.origin.regs[register])
        return value

    def get(self, register: int) -> Value:
        """Return a register's value."""
        value = self.regs[register]
        return self.fetch(register) if value is None else value

    def value_at(self, register: int, index: int) -> Any:
        """Return the number that a register holds in one lane, by its index in the flattened shape of the lanes."""
        value = self.get(register)
        return (value if value.ndim == 0 else np.broadcast_to(value, self.lanes.shape).flat[index]).item()

    def diverge(self, subsets: Iterable[Subset], live: Iterable[int]) -> list[Group]:
        """Split into disjoint subsets that make up the group; `live` has the live registers of each as a bit set."""
        origin = self.origin or DivergedGroup(self.lanes, self.regs)
        dirty = self.dirty if self.origin else 0
        children = []
        for subset, needed in zip(subsets, live, strict=True):
            regs: Registers = [None] * len(self.regs)
            for register in bits(dirty & needed):
                regs[register] = subset.take(self.get(register))
            children.append(Group(subset.lanes, regs, origin, dirty, self.tag))
        return children

    def split(self, first: npt.NDArray[np.bool_]) -> list[Group]:
        """Split into the lanes of a mask and the rest."""
        children = self.diverge([self.lanes.subset(first), self.lanes.subset(~first)], [self.dirty] * 2)
        for child in children:
            child.loops = self.loops
        return children

    def exit(self) -> None:
        """Record that these lanes have exited."""
        if self.origin is not None:
            self.origin.remaining -= self.lanes.n


def reconverge(groups: list[Group], live: int) -> Group:
    """Merge groups at one program counter into one; `live` is the bit set of the registers that are live there."""
    first = groups[0]
    origin = first.origin
    if origin is not None and all(group.origin is origin for group in groups):
        total = sum(group.lanes.n for group in groups)
        if total == origin.remaining:
            return _restore(groups, origin, live)
        if len(groups) == 1:
            return first
        return _join(groups, live, origin)
    return first if len(groups) == 1 else _join(groups, live, None)


def _join(groups: list[Group], live: int, origin: DivergedGroup | None) -> Group:
    """Merge groups; the result is a child of `origin` if they all are."""
    dirty = 0
    for group in groups:
        dirty |= group.dirty
    union = Union([group.lanes for group in groups])
    regs: Registers = [None] * len(groups[0].regs)
    for register in bits(live if origin is None else dirty & live):
        regs[register] = union.join([group.get(register) for group in groups])
    joined = Group(union.lanes, regs, origin, dirty if origin else 0, groups[0].tag)
    joined.loops = max(group.loops for group in groups)
    return joined


def _restore(groups: list[Group], origin: DivergedGroup, live: int) -> Group:
    """Restore a diverged group of which all remaining lanes have reconverged."""
    dirty = 0
    for group in groups:
        dirty |= group.dirty
    whole = origin.lanes if origin.remaining == origin.lanes.n else None
    if whole is not None and not dirty & live:
        return _undiverged(groups, whole, list(origin.regs))
    if whole is None and len(groups) == 1:
        lanes, join = groups[0].lanes, None
    else:
        join = Union([group.lanes for group in groups], whole)
        lanes = join.lanes
    clean = Group(lanes, [None] * len(origin.regs), origin)
    regs: Registers = list(origin.regs) if whole is not None else [None] * len(origin.regs)
    for register in bits(live):
        if dirty >> register & 1:
            values = [group.get(register) for group in groups]
            regs[register] = values[0] if join is None else join.join(values)
        elif whole is None:
            regs[register] = clean.fetch(register)
    return _undiverged(groups, lanes, regs)


def _undiverged(groups: list[Group], lanes: Lanes, regs: Registers) -> Group:
    group = Group(lanes, regs, None, 0, groups[0].tag)
    group.loops = max(group.loops for group in groups)
    return group


class Union:
    """The union of several disjoint sets of lanes."""

    def __init__(self, parts: Sequence[Lanes], whole: Lanes | None = None) -> None:
        """Join `parts`; `whole`, where given, is the set of lanes that they make up."""
        self.parts = parts
        first = parts[0]
        rectangular = not any(part.flat for part in parts)
        self.axis: int | None = None
        if rectangular and all(_same(part.columns, first.columns) for part in parts):
            self.axis = 0
            threads = np.sort(np.concatenate([part.threads for part in parts]))
            self.lanes = whole or Lanes(first.wave, threads, first.columns, False)
            self.indices = [np.searchsorted(self.lanes.threads, part.threads) for part in parts]
        elif rectangular and all(_same(part.threads, first.threads) for part in parts):
            self.axis = 1
            columns = np.sort(np.concatenate([part.columns for part in parts]))
            self.lanes = whole or Lanes(first.wave, first.threads, columns, False)
            self.indices = [np.searchsorted(self.lanes.columns, part.columns) for part in parts]
        else:
            self.lanes = whole or self._flat()
            self.indices = [self.lanes._index[part.position.ravel()] for part in parts]

    def _flat(self) -> Lanes:
        wave = self.parts[0].wave
        here = np.zeros(wave.threads * wave.columns, np.bool_)
        for part in self.parts:
            here[part.position.ravel()] = True
        threads, columns = np.divmod(np.flatnonzero(here), wave.columns)
        return Lanes(wave, threads, columns, True)

    def join(self, values: Sequence[Value]) -> Value:
        """Return the value of the union from the values of its parts."""
        first = values[0]
        if first.ndim == 0 and all(value is first or (value.ndim == 0 and value == first) for value in values):
            return first
        if self.axis == 0:
            width = max(value.shape[1] if value.ndim else 1 for value in values)
            out = np.empty((self.lanes.shape[0], width), first.dtype)
            for index, value in zip(self.indices, values, strict=True):
                out[index] = value
            return out
        if self.axis == 1:
            height = max(value.shape[0] if value.ndim else 1 for value in values)
            out = np.empty((height, self.lanes.shape[1]), first.dtype)
            for index, value in zip(self.indices, values, strict=True):
                out[:, index] = value
            return out
        out = np.empty(self.lanes.n, first.dtype)
        for index, part, value in zip(self.indices, self.parts, values, strict=True):
            if value.ndim and value.size < part.n:
                value = np.broadcast_to(value, part.shape)
            out[index] = value.ravel()
        return out.reshape(self.lanes.shape)


def _same(one: IndexArray, other: IndexArray) -> bool:
    return one is other or np.array_equal(one, other)


def unwritten(codes: Iterable[str], fill: int) -> Registers:
    """Return the initial values of registers: each filled with one byte."""
    return [_filled(code, fill) for code in codes]


@cache
def _filled(code: str, fill: int) -> Value:
    return np.bool_(fill & 1) if code == "?" else np.frombuffer(bytes([fill]) * int(code[1]), np.dtype(code))[0]


class StalledGroups:
    """The stalled groups of a wave; if `in_turn`, lanes that wait for their turn may be woken one by one."""

    def __init__(self, in_turn: bool = True) -> None:
        self.groups: list[tuple[Group, int]] = []  # with the basic blocks where they go on
        self.begin()
        self._woken = Counter[int]()  # lanes per basic block
        # wakes in a row of which one lane went on each, how many there must be, whether the last one was for one lane
        self._turns, self._needed_turns, self._is_turn = 0, FIRST_TURNS if in_turn else NEVER, False
        self._by_block = True  # the order of turns: blocks, then threads, or threads, then blocks

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def takes_turns(self) -> bool:
        """True if the lanes that wait may go on in a known order."""
        return self._needed_turns <= MAX_TURNS

    def begin(self) -> None:
        """Begin a run of the wave."""
        # True if all groups were in loops that change nothing when the wave stopped: only other waves can end them
        self.is_endless = False
        self.is_alone = False  # True if such a loop is all that remains, so that no other thread of the wave can end it
        self._endless = self._wakes = 0
        self._is_released = False

    def add(self, group: Group, block: int) -> None:
        """Add a group that goes on at a basic block."""
        self.groups.append((group, block))

    def add_endless(self, is_alone: bool) -> None:
        """Record that the next group is in a loop that changes nothing."""
        self._endless += 1
        self.is_alone = is_alone

    def note_release(self) -> None:
        """Record that a barrier has released threads, which may write what the groups wait for."""
        self._is_released = True

    def next(self) -> list[tuple[Group, int]]:
        """Return the groups to wake, to poll once, if other threads went on since the last wake; else none."""
        lanes = self._lanes()
        left = {block: count - lanes[block] for block, count in self._woken.items() if lanes[block] < count}
        if self._wakes == MAX_WAKES or not (left or self._is_released or self._is_turn):
            return []
        turn = None if self._is_released else self._turn(left)
        wakes = self._wakes + 1
        self.begin()
        self._wakes, self._is_turn = wakes, turn is not None
        if turn is not None:
            self._woken = lanes
            return [self._first(turn)]
        return self._take(lanes, SPIN_LIMIT - 1)

    def _turn(self, left: dict[int, int]) -> int | None:
        """Return the basic block of the group of which to wake one lane, given the lanes that left; None for all."""
        if self._is_turn and not left:
            self._needed_turns, self._by_block = self._needed_turns * 2, not self._by_block
        self._turns = self._turns + 1 if list(left.values()) == [1] else 0
        is_next = self._turns >= self._needed_turns and any(block in left for _, block in self.groups)
        return next(iter(left)) if is_next else None

    def _first(self, block: int) -> tuple[Group, int]:
        """Remove the first lane that goes on at a basic block."""
        at = next(at for at, (_, its) in enumerate(self.groups) if its == block)
        group, _ = self.groups.pop(at)
        if group.lanes.n > 1:
            group, rest = group.split(group.lanes.first(self._by_block))
            self.groups.insert(at, (rest, block))
        group.loops = SPIN_LIMIT - 1
        return group, block

    def end(self) -> list[tuple[Group, int]]:
        """Return all groups, for the wave's next run."""
        self.is_endless = self._endless == len(self.groups)
        self._is_turn = False
        return self._take(self._lanes(), 0)

    def _lanes(self) -> Counter[int]:
        lanes = Counter[int]()
        for group, block in self.groups:
            lanes[block] += group.lanes.n
        return lanes

    def _take(self, lanes: Counter[int], loops: int) -> list[tuple[Group, int]]:
        self._woken, taken, self.groups = lanes, self.groups, []
        for group, _ in taken:
            group.loops = loops
        return taken
