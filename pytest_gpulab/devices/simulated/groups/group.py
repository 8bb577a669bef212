"""Groups of lanes that share a program counter: how they part at a branch and meet again, registers included.

When a group parts, it stays behind as the `Frame` of its children. A child keeps only what it has written since
(its dirty registers) and takes everything else from the frame when it is first read. When all lanes of a frame
that are still alive meet again, the frame's own values are restored, so values that were uniform stay uniform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .lanes import Lanes, Subset, Value
from .union import Union

Registers = list[Any]


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Frame:
    """The lanes and registers of a group that has parted; `remaining` of its lanes have not exited."""

    def __init__(self, lanes: Lanes, regs: Registers) -> None:
        self.lanes, self.regs, self.remaining = lanes, regs, lanes.n


class Group:
    """Lanes at one program counter.

    Attributes:
        regs: by register index; None where the value is to be taken from the frame.
        frame: where the group split off, None if it stands for itself.
        dirty: bit set of the registers written since then.
        tag: groups of different tags never meet except at block barriers (schedules other than lockstep).
        loops: back edges taken in loops that may be waiting.
    """

    __slots__ = ("_place", "dirty", "frame", "lanes", "loops", "regs", "tag")

    def __init__(self, lanes: Lanes, regs: Registers, frame: Frame | None = None, dirty: int = 0, tag: int = 0) -> None:
        self.lanes, self.regs, self.frame, self.dirty, self.tag = lanes, regs, frame, dirty, tag
        self.loops = 0
        self._place: Subset | None = None

    def fetch(self, register: int) -> Value:
        """Return a register that is still the frame's, and keep it."""
        assert self.frame is not None, f"register {register} was never written"
        if self._place is None:
            self._place = self.frame.lanes.locate(self.lanes)
        value = self.regs[register] = self._place.take(self.frame.regs[register])
        return value

    def get(self, register: int) -> Value:
        """Return a register's value."""
        value = self.regs[register]
        return self.fetch(register) if value is None else value

    def part(self, subsets: Iterable[Subset], live: Iterable[int]) -> list[Group]:
        """Split into disjoint subsets that make up the group; `live` says what each needs, as bit sets."""
        frame = self.frame or Frame(self.lanes, self.regs)
        dirty = self.dirty if self.frame else 0
        children = []
        for subset, needed in zip(subsets, live, strict=True):
            regs: Registers = [None] * len(self.regs)
            for register in bits(dirty & needed):
                regs[register] = subset.take(self.get(register))
            children.append(Group(subset.lanes, regs, frame, dirty, self.tag))
        return children

    def exit(self) -> None:
        """Note that these lanes have ended."""
        if self.frame is not None:
            self.frame.remaining -= self.lanes.n


def meet(groups: list[Group], live: int) -> Group:
    """Return the groups, which stand at one place, as one; `live` registers (a bit set) are still needed there."""
    first = groups[0]
    frame = first.frame
    if frame is not None and all(group.frame is frame for group in groups):
        total = sum(group.lanes.n for group in groups)
        if total == frame.remaining:
            return _restore(groups, frame, live)
        if len(groups) == 1:
            return first
        return _join(groups, live, frame)
    return first if len(groups) == 1 else _join(groups, live, None)


def _join(groups: list[Group], live: int, frame: Frame | None) -> Group:
    """Put groups side by side, still children of `frame` if they all are."""
    dirty = 0
    for group in groups:
        dirty |= group.dirty
    union = Union([group.lanes for group in groups])
    regs: Registers = [None] * len(groups[0].regs)
    for register in bits(live if frame is None else dirty & live):
        regs[register] = union.join([group.get(register) for group in groups])
    joined = Group(union.lanes, regs, frame, dirty if frame else 0, groups[0].tag)
    joined.loops = max(group.loops for group in groups)
    return joined


def _restore(groups: list[Group], frame: Frame, live: int) -> Group:
    """All remaining lanes of a frame are here: they stand for themselves again."""
    dirty = 0
    for group in groups:
        dirty |= group.dirty
    whole = frame.lanes if frame.remaining == frame.lanes.n else None
    if whole is not None and not dirty & live:
        return _thawed(groups, whole, list(frame.regs))
    if whole is None and len(groups) == 1:
        lanes, join = groups[0].lanes, None
    else:
        join = Union([group.lanes for group in groups], whole)
        lanes = join.lanes
    clean = Group(lanes, [None] * len(frame.regs), frame)
    regs: Registers = list(frame.regs) if whole is not None else [None] * len(frame.regs)
    for register in bits(live):
        if dirty >> register & 1:
            values = [group.get(register) for group in groups]
            regs[register] = values[0] if join is None else join.join(values)
        elif whole is None:
            regs[register] = clean.fetch(register)
    return _thawed(groups, lanes, regs)


def _thawed(groups: list[Group], lanes: Lanes, regs: Registers) -> Group:
    group = Group(lanes, regs, None, 0, groups[0].tag)
    group.loops = max(group.loops for group in groups)
    return group


def unwritten(codes: Iterable[str], fill: int) -> Registers:
    """Return what registers hold before they are written: every one filled with one byte."""
    return [
        np.bool_(fill & 1) if code == "?" else np.frombuffer(bytes([fill]) * int(code[1]), np.dtype(code))[0]
        for code in codes
    ]
