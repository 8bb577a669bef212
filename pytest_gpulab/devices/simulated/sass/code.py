"""A kernel's machine code as basic blocks; each instruction has the number of its PTX statement.

A cubin with line information contains its PTX text and a table from machine instructions to lines of that text.
Statements have the same numbers here and in the simulation, so that the simulation's counts apply to them.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_gpulab.devices.compiler.elf import Elf
from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.reader import parse
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Label, PtxModule

from .instructions import BRX, CALL, NBYTES, MachineInstruction, decode
from .line_table import read_lines

_INTERNAL = "$__internal_"  # the compiler's own functions behind the kernel: slow paths, long divisions
_LINES, _PTX, _CODE = ".nv_debug_line_sass", ".nv_debug_ptx_txt", ".text."
# raised for unknown file layouts and unknown PTX
_UNREADABLE = (ValueError, LookupError, StopIteration, struct.error, CannotSimulate)


@dataclass
class MachineBlock:
    """A basic block of machine code."""

    instructions: list[MachineInstruction]  # the instructions, of which only the last may jump
    targets: tuple[int, ...] = ()  # successors in the control-flow graph
    leaves: bool = False  # True if lanes may exit or return at its end
    calls: int | None = None  # the called block if it ends with a call within the kernel's code

    @property
    def last(self) -> MachineInstruction:
        """The last instruction, which determines the successor."""
        return self.instructions[-1]


class MachineCode:
    """The machine code of a module, from a cubin with line information, for an architecture such as `sm_90`.

    `ptx` is the module in the cubin's copy of the PTX text. Raises any exception if the file has an unexpected layout.
    """

    def __init__(self, cubin: bytes, architecture: str) -> None:
        self._elf, self._architecture = Elf(cubin), int(architecture.removeprefix("sm_"))
        self.ptx, self._numbers = _read_ptx(self._elf.contents(_PTX))
        functions = {
            offset: symbol.section.removeprefix(_CODE) if symbol.section else symbol.name
            for offset, symbol in self._elf.relocations(_LINES).items()
        }
        self._lines = read_lines(self._elf.contents(_LINES), functions)

    def blocks(self, kernel: str) -> list[MachineBlock]:
        """Return a kernel's reachable basic blocks, the entry first; empty if the file lacks the kernel."""
        instructions = decode(self._elf.contents(_CODE + kernel))
        end = min([s.value for s in self._elf.symbols if s.section == _CODE + kernel and s.name.startswith(_INTERNAL)],
                  default=NBYTES * len(instructions))  # fmt: skip
        rows = sorted(self._lines.get(kernel, []), key=lambda row: row[0])
        starts = [address for address, _ in rows]
        numbered = []
        for instruction in instructions:
            row = bisect_right(starts, instruction.address) - 1
            known = row >= 0 and instruction.address < end
            number = self._numbers.get(rows[row][1], -1) if known else -1
            numbered.append(replace(instruction, number=number))
        return _reachable(_blocks(numbered, self._architecture)) if numbered else []


def machine_code(cubin: bytes, architecture: str, module: PtxModule) -> MachineCode | None:
    """Return the machine code of a module; None if the file is unreadable or belongs to another module."""
    try:
        code = MachineCode(cubin, architecture)
    except _UNREADABLE:
        return None
    return code if _outline(code.ptx) == _outline(module) else None


def kernel_blocks(code: MachineCode | None, kernel: str) -> list[MachineBlock]:
    """Return a kernel's basic blocks; empty if they cannot be read."""
    try:
        return code.blocks(kernel) if code else []
    except _UNREADABLE:
        return []


def _outline(module: PtxModule) -> list[tuple[int, tuple[str, ...]]]:
    statements = [s for function in module.functions.values() for s in function.body if not isinstance(s, Label)]
    return [(s.number, s.op if isinstance(s, Instruction) else ("call",)) for s in statements]


def _read_ptx(text: bytes) -> tuple[PtxModule, dict[int, int]]:
    """Return the module, and the number of the statement that begins on each line of the text (1-based)."""
    lines = text.decode(errors="replace").split("\0")
    marked: list[str] = []
    complete = True
    for number, line in enumerate(lines, 1):
        if complete and line and line[0] not in "{}.)":
            marked.append(f".loc 1 {number} 0")
        marked.append(line)
        if line.strip():
            complete = line.rstrip()[-1] in ";{}:"
    module = parse("\n".join(marked))
    statements = [s for function in module.functions.values() for s in function.body if not isinstance(s, Label)]
    return module, {s.where.line: s.number for s in statements if s.where is not None}


def _blocks(instructions: list[MachineInstruction], architecture: int) -> list[MachineBlock]:
    leaders = {0}
    for instruction in instructions:
        if instruction.ends_block:
            leaders.add(instruction.address + NBYTES)
            target = instruction.target(architecture)
            if target is not None:
                leaders.add(target)
    starts = sorted(start for start in leaders if 0 <= start < NBYTES * len(instructions))
    index = {start: i for i, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], NBYTES * len(instructions)], strict=True):
        block = MachineBlock(instructions[start // NBYTES : end // NBYTES])
        target = index.get(block.last.target(architecture) or -1)
        following = index.get(end)
        block.targets = tuple(_targets(block, target, following))
        block.leaves = block.last.leaves or not block.targets
        block.calls = target if block.last.operation == CALL else None
        blocks.append(block)
    _bind_switches(blocks)
    return blocks


def _targets(block: MachineBlock, target: int | None, following: int | None) -> Iterator[int]:
    last = block.last
    if last.jumps and target is not None:
        yield target
    if (last.falls_through or not last.ends_block) and following is not None and following != target:
        yield following


def _bind_switches(blocks: list[MachineBlock]) -> None:
    """Add the blocks without other predecessors as targets of every jump through a table."""
    reached = {target for block in blocks for target in (*block.targets, block.calls)}
    others = tuple(i for i in range(1, len(blocks)) if i not in reached)
    for block in blocks:
        if block.last.operation == BRX:
            block.targets = (*block.targets, *others)


def _reachable(blocks: list[MachineBlock]) -> list[MachineBlock]:
    found, stack = {0}, [0]
    while stack:
        block = blocks[stack.pop()]
        for target in (*block.targets, *([] if block.calls is None else [block.calls])):
            if target not in found:
                found.add(target)
                stack.append(target)
    place = {old: new for new, old in enumerate(sorted(found))}
    for old in place:
        block = blocks[old]
        block.targets = tuple(place[target] for target in block.targets)
        block.calls = None if block.calls is None else place[block.calls]
    return [blocks[old] for old in place]
