"""Groups of lanes that share a program counter: divergence at a branch and reconvergence, with their registers.

A group that diverges is kept as the `DivergedGroup` of its children. A child stores only the registers that it has
written since (its dirty registers). It fetches others from the diverged group on the first read. When all lanes that
have not exited reconverge, the values of the diverged group are restored. So values that were uniform stay uniform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .lanes import Lanes, Subset, Value
from .union import Union

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
    """Lanes at one program counter.

    Attributes:
        regs: values by register index; None where the diverged group holds the value.
        origin: the diverged group of which this is a child, None if it is no child.
        dirty: bit set of the registers written since the divergence.
        tag: groups of different tags reconverge only at block barriers (schedules other than lockstep).
        loops: number of back edges taken in loops that may be waiting.
    """

    __slots__ = ("_subset", "dirty", "lanes", "loops", "origin", "regs", "tag")

    def __init__(
        self, lanes: Lanes, regs: Registers, origin: DivergedGroup | None = None, dirty: int = 0, tag: int = 0
    ) -> None:
        self.lanes, self.regs, self.origin, self.dirty, self.tag = lanes, regs, origin, dirty, tag
        self.loops = 0
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


def unwritten(codes: Iterable[str], fill: int) -> Registers:
    """Return the initial values of registers: each filled with one byte."""
    return [
        np.bool_(fill & 1) if code == "?" else np.frombuffer(bytes([fill]) * int(code[1]), np.dtype(code))[0]
        for code in codes
    ]
