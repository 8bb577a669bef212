"""Source lines of memory accesses that the compiler leaves without one, and of the assembler's messages.

Where two branches begin with the same load, the compiler loads once before both, at line 0. The preceding line is often
a barrier's, so the load gets the line of the first use of its value, where the source reads it. Where two branches end
with a store to the same address, the compiler stores once after both. If the preceding line is a barrier's, the store
gets the line where its value or address was computed.
"""

import re
from collections.abc import Sequence

from pytest_gpulab.devices.protocol import SourceLine

from .syntax import Instruction, Statement, registers_of

_LOADS = ("ld", "ldu", "atom")
_STORES = ("st", "red", "atom")
_BARRIERS = ("bar", "barrier")
MAX_STATEMENTS = 1000  # searched backwards for the one that computes a store's value
_MESSAGE = re.compile(r"^ptxas [^\n]*?, line (?P<line>\d+); (?:error|fatal) *: *(?P<text>[^\n]*)$", re.M)
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)


class Unplaced:
    """The loads of a function that still lack a line, by the registers computed from their values."""

    def __init__(self) -> None:
        self._waiting: dict[str, frozenset[int]] = {}
        self._barriers: set[SourceLine] = set()

    def needs(self, statement: Statement) -> bool:
        """Return whether a statement that has a line must be processed."""
        return bool(self._waiting) or (isinstance(statement, Instruction) and statement.op[0] in _BARRIERS)

    def process(self, body: list[Statement], has_line: bool) -> None:
        """Process a function's last statement: a load without a line, or a use of its value.

        `body` has the statements so far. Loads in it are replaced once their line is known. `has_line` is True if the
        compiler gives the last one a line.
        """
        last = body[-1]
        if isinstance(last, Instruction) and last.op[0] in _BARRIERS and last.where is not None:
            self._barriers.add(last.where)
        if not isinstance(last, Instruction) or (has_line and not self._waiting):
            return
        guard = [last.guard[0]] if last.guard else []
        used = [self._waiting[name] for name in registers_of([*last.operands, *guard]) if name in self._waiting]
        loads = frozenset[int]().union(*used)
        if has_line:
            self._place(body, loads, last)
            return
        if last.op[0] in _STORES and "param" not in last.op:
            body[-1] = last = _placed(last, body, self._barriers)
        if last.op[0] in _LOADS and "param" not in last.op:
            loads |= {len(body) - 1}
        if loads:
            self._waiting.update(dict.fromkeys(registers_of(last.operands[:1]), loads))

    def _place(self, body: list[Statement], loads: frozenset[int], user: Instruction) -> None:
        for index in loads:
            load = body[index]
            assert isinstance(load, Instruction)
            body[index] = load._replace(where=user.where)
        if loads:
            left = ((name, waiting - loads) for name, waiting in self._waiting.items())
            self._waiting = {name: waiting for name, waiting in left if waiting}


def _placed(store: Instruction, body: Sequence[Statement], barriers: set[SourceLine]) -> Instruction:
    """Return a store without a line at the line of its value or address, if the last line is a barrier's."""
    if store.where is None or store.where not in barriers:
        return store
    for operand in reversed(store.operands):
        relevant = set(registers_of([operand]))
        for maker in reversed(body[-MAX_STATEMENTS:-1]):
            if not isinstance(maker, Instruction) or relevant.isdisjoint(registers_of(maker.operands[:1])):
                continue
            if maker.where not in barriers:
                return store._replace(where=maker.where)
            relevant.update(registers_of(maker.operands[1:]))
    return store


def at_source_lines(messages: str, ptx: str) -> str:
    """Return the messages of ptxas, with each error in the compiler's form: `file.cu(12): error: text`.

    They name lines of the PTX, which has line information. An error before its first source line keeps its form.
    """
    files = dict(_FILE.findall(ptx))
    lines = ptx.splitlines(keepends=True)

    def placed(message: re.Match[str]) -> str:
        places = _PLACE.findall("".join(lines[: int(message["line"])]))
        if not places:
            return message[0]
        file, line = places[-1]
        return f"{files.get(file, file)}({line}): error: {message['text']}"

    return _MESSAGE.sub(placed, messages)
