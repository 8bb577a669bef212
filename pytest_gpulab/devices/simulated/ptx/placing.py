"""Source lines of memory accesses to which the compiler gives none.

Where two branches begin with the same load, the compiler loads once before both, at line 0. The line before that is
often a barrier's; the lines where the value is used are those where the source reads it. Where two branches end with a
store to the same address, it stores once behind both. Behind a barrier of theirs, the line where the value or the
address was computed is a better one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_gpulab.devices.protocol import SourceLine

from .syntax import Address, Instruction, Not, Operand, Pair, Reg, Statement, Vector

_LOADS = ("ld", "ldu", "atom")
_STORES = ("st", "red", "atom")
_BARRIERS = ("bar", "barrier")
MAX_STATEMENTS = 1000  # among which the one is sought that makes a store's value


class Unplaced:
    """The loads of a function that still wait for a line, by the registers that hold what comes of their values."""

    def __init__(self) -> None:
        self._waiting: dict[str, frozenset[int]] = {}
        self._barriers: set[SourceLine] = set()

    def see(self, body: list[Statement], has_line: bool) -> None:
        """Look at a function's last statement: it may be such a load, or use the value of one.

        Args:
            body: the statements so far.
            has_line: whether the compiler gives the last one a line.
        """
        last = body[-1]
        if isinstance(last, Instruction) and last.op[0] in _BARRIERS and last.where is not None:
            self._barriers.add(last.where)
        if not isinstance(last, Instruction) or (has_line and not self._waiting):
            return
        guard = [last.guard[0]] if last.guard else []
        used = [self._waiting[name] for name in _registers([*last.operands, *guard]) if name in self._waiting]
        loads = frozenset[int]().union(*used)
        if has_line:
            self._place(body, loads, last)
            return
        if last.op[0] in _STORES and "param" not in last.op:
            body[-1] = last = _placed(last, body, self._barriers)
        if last.op[0] in _LOADS and "param" not in last.op:
            loads |= {len(body) - 1}
        if loads:
            self._waiting.update(dict.fromkeys(_registers(last.operands[:1]), loads))

    def _place(self, body: list[Statement], loads: frozenset[int], user: Instruction) -> None:
        for index in loads:
            load = body[index]
            assert isinstance(load, Instruction)
            body[index] = replace(load, where=user.where)
        if loads:
            left = ((name, waiting - loads) for name, waiting in self._waiting.items())
            self._waiting = {name: waiting for name, waiting in left if waiting}


def _placed(store: Instruction, body: Sequence[Statement], barriers: set[SourceLine]) -> Instruction:
    """Return a store, which has no line, at the line that its value or address has if a barrier's is the last one."""
    if store.where is None or store.where not in barriers:
        return store
    for operand in reversed(store.operands):
        wanted = set(_registers([operand]))
        for maker in reversed(body[-MAX_STATEMENTS:-1]):
            if not isinstance(maker, Instruction) or wanted.isdisjoint(_registers(maker.operands[:1])):
                continue
            if maker.where not in barriers:
                return replace(store, where=maker.where)
            wanted.update(_registers(maker.operands[1:]))
    return store


def _registers(operands: Sequence[Operand]) -> Iterator[str]:
    """Yield the names of the registers in some operands."""
    for operand in operands:
        if isinstance(operand, Reg):
            yield operand.name
        elif isinstance(operand, Address):
            yield from _registers([operand.base])
        elif isinstance(operand, Vector):
            yield from _registers(operand.items)
        elif isinstance(operand, Pair):
            yield from _registers([operand.first, operand.second])
        elif isinstance(operand, Not):
            yield from _registers([operand.operand])
