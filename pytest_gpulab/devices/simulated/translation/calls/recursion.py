"""Recursive functions of a kernel: one copy of each, with a stack of frames per thread.

All other calls are inlined (`inline`). A frame lies in local memory: results, parameters and the function's arrays, at
offsets from the register `%stack`. A call saves the caller's live registers and jumps to the copy; a return jumps to
the return address in the frame. Saved registers are stored separately, out of reach of pointers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Function,
    Imm,
    Instruction,
    Label,
    Operand,
    PtxModule,
    Reg,
    Statement,
    Sym,
    Variable,
    Vector,
)
from pytest_gpulab.devices.simulated.translation.control.building import build, components
from pytest_gpulab.devices.simulated.translation.control.graph import (
    ENTER,
    LEAVE,
    RETURN,
    STACK_AREA,
    defined_and_used,
    refusal,
)
from pytest_gpulab.devices.source.names import unmangle

STACK = "%stack"  # the register with the address of the current frame
STACK_BYTES = 1024  # per thread: the default of cudaLimitStackSize
SLOT_BYTES = 8  # of a saved register
_ALIGNMENT = 16  # that of the widest access


@dataclass(eq=False)
class Frame:
    """The frames of one function."""

    function: Function
    suffix: str
    # statements of its copy; calls of recursive functions are still `Call`
    body: list[Statement] = field(default_factory=list)
    cost: int = 0  # bytes per frame on hardware
    nbytes: int = 0  # bytes per frame in the simulation
    last: int = 0  # the largest offset in the stack at which a frame fits
    offsets: dict[str, int] = field(default_factory=dict)  # offsets of its results, parameters and arrays
    arrays: tuple[int, int] = (0, 0)  # first byte and end of its arrays
    # all calls of the function; a frame stores the number of its call
    calls: list[StackCall] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name in the source."""
        return unmangle(self.function.name)

    @property
    def entry(self) -> str:
        """The label at which the copy begins."""
        return f"$entry{self.suffix}"

    @property
    def end(self) -> str:
        """The label at which the copy returns."""
        return f"$end{self.suffix}"

    def formals(self) -> dict[str, int]:
        """Return the offsets of results and parameters, which depend on their sizes alone, and their end."""
        end, found = 0, {}
        for variable in (*self.function.results, *self.function.parameters):
            found[variable.name] = end
            end += -(-variable.nbytes // _ALIGNMENT) * _ALIGNMENT
        return {**found, "": end}


@dataclass(frozen=True, eq=False)
class StackCall:
    """A call of a recursive function, numbered among the callee's calls; it saves the caller's registers `saved`.

    The caller is None for the kernel, because no function changes its registers.
    """

    number: int
    caller: Frame | None
    callee: Frame
    saved: tuple[str, ...]
    where: SourceLine | None

    @property
    def step(self) -> int:
        """The bytes between the caller's frame and the callee's."""
        return self.caller.nbytes if self.caller is not None else 0


def candidates(module: PtxModule, caller: Function, call: Call) -> list[str]:
    """Return the functions that a call may reach, by a pointer all with parameters of the same sizes.

    Raises CannotSimulate if the call passes something other than a parameter.
    """
    if isinstance(call.callee, Sym):
        return [call.callee.name]
    if not {*call.results, *call.arguments} <= caller.variables.keys():
        raise refusal(call)
    passed = [caller.variables[name].nbytes for name in (*call.results, *call.arguments)]
    return [
        name
        for name, function in module.functions.items()
        if not function.entry
        and function.body
        and passed == [variable.nbytes for variable in (*function.results, *function.parameters)]
    ]


def calls_by_pointer(module: PtxModule, kernel: Function) -> bool:
    """Return True if a kernel, or a function that it calls, calls a function through a pointer."""
    reached, new = {kernel.name}, [kernel]
    while new:
        for call in (statement for statement in new.pop().body if isinstance(statement, Call)):
            if isinstance(call.callee, Reg):
                return True
            if call.callee.name not in reached and call.callee.name in module.functions:
                reached.add(call.callee.name)
                new.append(module.functions[call.callee.name])
    return False


def recursive(module: PtxModule) -> frozenset[str]:
    """Return the functions called through the stack: recursive ones, and other candidates of pointers to them."""
    numbers = {name: number for number, name in enumerate(module.functions)}
    calls = {
        number: [candidates(module, function, call) for call in function.body if isinstance(call, Call)]
        for number, function in enumerate(module.functions.values())
    }
    targets = {
        number: [numbers[name] for names in found for name in names if name in numbers]
        for number, found in calls.items()
    }
    if not any(targets.values()):
        return frozenset()
    names = list(numbers)
    cycles = [
        found for found in components(list(targets), targets, 0) if len(found) > 1 or found[0] in targets[found[0]]
    ]
    result = {names[number] for found in cycles for number in found}
    several = [set(found) for one in calls.values() for found in one if len(found) > 1]
    while more := [found for found in several if found & result and not found <= result]:
        result.update(*more)
    return frozenset(result)


def link(kernel: Function, frames: list[Frame], costs: Mapping[str, int]) -> list[StackCall]:
    """Append the copies to the kernel's own statements, replace calls by jumps, and return the calls by their numbers.

    `frames` are those of all recursive functions that it may call; `costs` the bytes per frame of each function in
    machine code, by symbol, where known.
    """
    saved: dict[int, tuple[str, ...]] = {}
    for frame in frames:
        section = replace(kernel, body=frame.body)
        saved |= _live_behind(section)
    by_name = {frame.function.name: frame for frame in frames}
    for frame in frames:
        slots = max((len(saved[id(s)]) for s in _calls(frame.body, by_name) if id(s) in saved), default=0)
        _lay_out(kernel, frame, slots, costs)
    area = _scale(frames)
    kernel.variables[STACK_AREA] = Variable(STACK_AREA, "local", _ALIGNMENT, area)
    kernel.registers[STACK] = "u64"
    linker = _Linker(kernel, by_name, saved)
    body: list[Statement] = [Instruction(("mov", "u64"), (Reg(STACK), Sym(STACK_AREA)))]
    body += [*linker.section(kernel.body, None), Instruction(("ret",), ())]
    copies = [[Label(frame.entry), *linker.section(frame.body, frame)] for frame in frames]
    for frame, copy in zip(frames, copies, strict=True):
        body += [*copy, *_returns(kernel, frame)]
    kernel.body[:] = body
    return linker.calls


def _live_behind(function: Function) -> dict[int, tuple[str, ...]]:
    """Return the live registers after each remaining call in a function, by the call's `id`."""
    graph = build(function)
    names = list(graph.registers)
    found = {}
    for block in graph.blocks:
        if not any(isinstance(statement, Call) for statement in block.body):
            continue
        live = {names[index] for index, bit in enumerate(f"{block.live_out:b}"[::-1]) if bit == "1"}
        for statement in reversed([*block.body, *([block.last] if block.last else [])]):
            if isinstance(statement, Call):
                found[id(statement)] = tuple(sorted(live))
            written, read = defined_and_used(statement, graph.registers)
            live = (live - set(written)) | set(read)
    return found


def _calls(body: Iterable[Statement], frames: Mapping[str, Frame]) -> Iterator[Call]:
    for statement in body:
        if isinstance(statement, Call) and statement.callee.name in frames:
            yield statement


def _lay_out(kernel: Function, frame: Frame, slots: int, costs: Mapping[str, int]) -> None:
    """Place results, parameters and arrays. Until `_scale`, `nbytes` is the required size."""
    formals = frame.formals()
    start = end = formals.pop("")
    frame.offsets = {name + frame.suffix: offset for name, offset in formals.items()}
    for variable in frame.function.variables.values():
        if variable.space == "local":
            name = variable.name + frame.suffix
            del kernel.variables[name]
            frame.offsets[name] = -(-end // variable.align) * variable.align
            end = frame.offsets[name] + variable.nbytes
    frame.arrays = start, end
    saves = SLOT_BYTES * (slots + 1)
    frame.nbytes = max(end, saves)
    frame.cost = -(-max(costs.get(frame.function.name, end - start + saves), SLOT_BYTES) // SLOT_BYTES) * SLOT_BYTES


def _scale(frames: list[Frame]) -> int:
    """Make frame sizes multiples of their costs, so that one offset limits the depth; return the bytes of the stack.

    They include the parameters of a call that overflows the stack.
    """
    factor = max(-(-frame.nbytes // frame.cost) for frame in frames)
    factor += factor % 2  # costs are multiples of 8 bytes, frames of 16
    nbytes = factor * max(STACK_BYTES, sum(frame.cost for frame in frames))
    for frame in frames:
        frame.nbytes = factor * frame.cost
        frame.last = nbytes - frame.nbytes
    return nbytes + max(frame.arrays[0] for frame in frames)


def _returns(kernel: Function, frame: Frame) -> list[Statement]:
    index, table = f"%return{frame.suffix}", f"$returns{frame.suffix}"
    kernel.registers[index] = "u32"
    kernel.branch_targets[table] = tuple(f"$back{number}{frame.suffix}" for number in range(len(frame.calls)))
    return [Instruction((RETURN,), (Reg(index), Reg(STACK))), Instruction(("brx", "idx"), (Reg(index), Sym(table)))]


class _Linker:
    """Rewriter of the statements of the kernel and of each copy."""

    def __init__(self, kernel: Function, frames: Mapping[str, Frame], saved: Mapping[int, tuple[str, ...]]) -> None:
        self.kernel, self.frames, self.saved = kernel, frames, saved
        self.calls: list[StackCall] = []

    def section(self, body: list[Statement], owner: Frame | None) -> list[Statement]:
        """Return the statements of the kernel (None) or of a copy."""
        offsets = dict(owner.offsets) if owner is not None else {}
        for call in _calls(body, self.frames):
            callee = self.frames[call.callee.name]
            step = owner.nbytes if owner is not None else 0
            passed = zip((*call.results, *call.arguments), callee.formals().values(), strict=False)
            for name, offset in passed:
                offsets[name] = step + offset
                self.kernel.variables.pop(name, None)
        result: list[Statement] = []
        for statement in body:
            if isinstance(statement, Call) and statement.callee.name in self.frames:
                result += self._call(statement, owner)
            elif isinstance(statement, Instruction):
                result += self._placed(statement, offsets)
            else:
                result.append(statement)
        return result

    def _call(self, call: Call, owner: Frame | None) -> list[Statement]:
        callee = self.frames[call.callee.name]
        names = self.saved.get(id(call), ())
        number = Imm(len(self.calls))
        self.calls.append(StackCall(len(callee.calls), owner, callee, names, call.where))
        back = f"$back{len(callee.calls)}{callee.suffix}"
        callee.calls.append(self.calls[-1])
        registers = tuple(map(Reg, names))
        return [
            Instruction((ENTER,), (Reg(STACK), Reg(STACK), number, Vector(registers)), None, call.where, call.number),
            Instruction(("bra",), (Sym(callee.entry),), None, call.where),
            Label(back),
            Instruction((LEAVE,), (Vector((Reg(STACK), *registers)), Reg(STACK), number), None, call.where),
        ]

    def _placed(self, instruction: Instruction, offsets: Mapping[str, int]) -> Iterator[Statement]:
        """Address variables in the frame relative to the register `%stack`."""
        operands: list[Operand] = []
        op = instruction.op
        for operand in instruction.operands:
            symbol = operand.base if isinstance(operand, Address) else operand
            if not isinstance(symbol, Sym) or symbol.name not in offsets or op[0] in ("bra", "brx"):
                operands.append(operand)
                continue
            offset = offsets[symbol.name] + symbol.offset
            if isinstance(operand, Address):
                operands.append(Address(Reg(STACK), offset + operand.offset))
                op = (op[0], "local", *op[2:]) if op[1:2] == ("param",) else op
            else:
                address = f"%address~{len(self.kernel.registers)}"
                self.kernel.registers[address] = "u64"
                yield Instruction(("add", "u64"), (Reg(address), Reg(STACK), Imm(offset)), None, instruction.where)
                operands.append(Reg(address))
        yield instruction._replace(op=op, operands=tuple(operands))
