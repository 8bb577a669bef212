"""Turn a kernel and every device function it calls into one list of statements without calls.

What is left of calls are the few functions that the driver provides (`vprintf`, `__assertfail`, `malloc`, `free`); how
parameters get from one function to another is settled in `passing`, how functions call themselves in `recursion`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from pytest_gpulab.devices.compiler.static_limits import defined_nowhere
from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Address,
    Call,
    Function,
    Imm,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    PtxModule,
    Reg,
    Statement,
    Sym,
    Variable,
    Vector,
)
from pytest_gpulab.devices.simulated.translation.refusals import MALFORMED, refusal
from pytest_gpulab.devices.source.names import unmangle

from .passing import settle
from .recursion import Frame, StackCall, candidates, link, recursive

BUILT_IN = ("vprintf", "__assertfail", "malloc", "free")
REFUSED = "refused"  # an instruction of our own, which ends the launch with the words in its opcode
MAX_DEPTH = 32
MAX_STATEMENTS = 100_000  # of a kernel with its functions: what they take in memory and to translate is bounded
FUNCTION_STRIDE = 16  # bytes between the made-up addresses of functions, see `function_address`
FUNCTION_BASE = 0x10


def function_address(module: PtxModule, name: str) -> int:
    """Return the address that stands for a device function in a function pointer.

    Raises:
        CannotSimulate: the module does not have it.
    """
    if name not in module.functions:
        raise CannotSimulate(f"the address of {name}")
    return FUNCTION_BASE + FUNCTION_STRIDE * list(module.functions).index(name)


def undefined(module: PtxModule) -> str | None:
    """Say, in the compiler's form, which function is called and never defined: nvcc refuses such a file."""
    for function in module.functions.values():
        for call in (statement for statement in function.body if isinstance(statement, Call)):
            name = call.callee.name if isinstance(call.callee, Sym) else ""
            called = module.functions.get(name)
            if called is not None and not called.body and name not in BUILT_IN:
                place = f"{call.where.file}({call.where.line}): " if call.where else ""
                return f"{place}error: {defined_nowhere(name)}"
    return None


def inline(
    module: PtxModule, kernel: Function, frame_bytes: Callable[[], Mapping[str, int]] = dict
) -> tuple[Function, list[StackCall]]:
    """Return the kernel with every call replaced by the callee's statements, and its calls of recursive functions.

    A call that would unfold to too many statements is refused where a thread executes it.

    Args:
        module, kernel: as read.
        frame_bytes: gives the stack frame of each function in machine code; asked for recursive ones alone.

    Raises:
        CannotSimulate: an unknown external function; a statement of another form than the assembler wants.
    """
    return _Inliner(module, kernel).run(frame_bytes)


class _Sizes:
    """How many statements each function unfolds to; a call of a recursive one counts once."""

    def __init__(self, module: PtxModule, recursive_ones: frozenset[str]) -> None:
        self.module, self.recursive = module, recursive_ones
        self.known: dict[str, int] = {}

    def of(self, name: str, depth: int = 0) -> int:
        function = self.module.functions.get(name)
        if function is None or depth > MAX_DEPTH or (depth and name in self.recursive):
            return 1
        if name not in self.known:
            calls = (statement for statement in function.body if isinstance(statement, Call))
            reached = (name for call in calls for name in candidates(self.module, function, call))
            self.known[name] = len(function.body) + sum(self.of(callee, depth + 1) for callee in reached)
        return self.known[name]


class _Inliner:
    def __init__(self, module: PtxModule, kernel: Function) -> None:
        self.module = module
        self.kernel = kernel
        self.result = Function(kernel.name, True, kernel.parameters, ())
        self.body = self.result.body  # where statements go: the kernel's own, or a recursive function's
        self.made = 0  # statements of the bodies before
        self.serial = count(1)
        self.recursive = recursive(module)
        self.frames: dict[str, Frame] = {}
        self.sizes = _Sizes(module, self.recursive)
        self.open: list[str] = []  # the functions that are being unfolded, each inside the one before

    def run(self, frame_bytes: Callable[[], Mapping[str, int]]) -> tuple[Function, list[StackCall]]:
        self._expand(self.kernel, "", {}, "")
        done = 0
        while done < len(self.frames):
            self._copy(list(self.frames.values())[done])
            done += 1
        calls = link(self.result, list(self.frames.values()), frame_bytes()) if self.frames else []
        settle(self.result)
        return self.result, calls

    def _copy(self, frame: Frame) -> None:
        """Make the one copy of a recursive function."""
        self.made += len(self.body)
        self.body = frame.body
        own = {variable.name: variable.name + frame.suffix for variable in _formals(frame.function)}
        self._expand(frame.function, frame.suffix, own, frame.end)
        self.body.append(Label(frame.end))

    def _expand(self, function: Function, suffix: str, bound: dict[str, str], end: str) -> None:
        """Append a function's statements; `bound` maps its parameters to the caller's scratch names."""
        self.result.registers.update({name + suffix: kind for name, kind in function.registers.items()})
        for variable in function.variables.values():
            # a function's local memory is a new instance per inlined copy; its shared memory is one for all
            tail = suffix if variable.space != "shared" else ""
            name = variable.name + tail
            self.result.variables[name] = replace(variable, name=name)
        for label, targets in function.branch_targets.items():
            self.result.branch_targets[label + suffix] = tuple(target + suffix for target in targets)
        names = _Names(function, suffix, bound)
        self.open.append(function.name)
        statement: Statement | None = None
        try:
            for statement in function.body:
                self._statement(statement, names, end)
        except MALFORMED:
            raise refusal(statement) from None
        self.open.pop()

    def _statement(self, statement: Statement, names: _Names, end: str) -> None:
        if isinstance(statement, Label):
            self.body.append(Label(statement.name + names.suffix))
        elif isinstance(statement, Call):
            self._call(statement, names)
        elif names.suffix:
            self._instruction(statement, names, end)
        else:  # the kernel's own, whose names stay
            self.body.append(statement)

    def _instruction(self, instruction: Instruction, names: _Names, end: str) -> None:
        operands = tuple(names.operand(operand) for operand in instruction.operands)
        guard = names.guard(instruction.guard)
        op = instruction.op
        if op[0] in ("ret", "exit") and end and op[0] == "ret":
            op, operands = ("bra",), (Sym(end),)
        elif op[:2] == ("ld", "param") and not names.function.entry and _through_register(operands):
            # the address of a function's own parameter: `passing` puts such a parameter into local memory
            op = ("ld", "local", *op[2:])
        self.body.append(replace(instruction, op=op, operands=operands, guard=guard))

    def _call(self, call: Call, names: _Names) -> None:
        results, arguments = tuple(map(names.scratch, call.results)), tuple(map(names.scratch, call.arguments))
        after = f"$after~{next(self.serial)}"
        if call.guard is not None:
            register, negated = call.guard
            inverse = names.guard((register, not negated))
            self.body.append(Instruction(("bra",), (Sym(after),), inverse, call.where))
        if isinstance(call.callee, Reg):
            self._indirect(call, names, results, arguments, after)
        else:
            self._direct(call.callee.name, results, arguments, after, call)
        self.body.append(Label(after))

    def _direct(
        self,
        name: str,
        results: tuple[str, ...],
        arguments: tuple[str, ...],
        after: str,
        call: Call,
    ) -> None:
        callee = self.module.functions.get(name)
        if name in BUILT_IN:
            self.body.append(Call(Sym(name), results, arguments, None, call.where, call.number))
        elif callee is None or not callee.body:
            raise CannotSimulate(f"a call of {name}()", call.where)
        elif name in self.recursive:
            if name not in self.frames:
                self.frames[name] = Frame(callee, f"~{next(self.serial)}")
            self.body.append(Call(Sym(name), results, arguments, None, call.where, call.number))
        elif (reason := self._why_not(name)) is not None:
            self.body.append(Instruction((REFUSED, f"{reason} of {unmangle(name)}()"), (), None, call.where))
        else:
            formals = [parameter.name for parameter in _formals(callee)]
            bound = dict(zip(formals, (*results, *arguments), strict=True))
            self._expand(callee, f"~{next(self.serial)}", bound, after)

    def _why_not(self, name: str) -> str | None:
        """Say why a call is not unfolded."""
        if len(self.open) > MAX_DEPTH:
            return f"a call more than {MAX_DEPTH} deep"
        if self.made + len(self.body) + self.sizes.of(name) > MAX_STATEMENTS:
            return f"more than {MAX_STATEMENTS:,} instructions, functions unfolded: a call"
        return None

    def _indirect(
        self,
        call: Call,
        names: _Names,
        results: tuple[str, ...],
        arguments: tuple[str, ...],
        after: str,
    ) -> None:
        """Compare the pointer with every function of parameters of these sizes, and jump to the one it names."""
        assert isinstance(call.callee, Reg)
        pointer = names.operand(call.callee)
        for name in candidates(self.module, names.function, call):
            predicate, skip = f"%p~{next(self.serial)}", f"$skip~{next(self.serial)}"
            self.result.registers[predicate] = "pred"
            address = Imm(function_address(self.module, name))
            compare = Instruction(("setp", "ne", "u64"), (Reg(predicate), pointer, address), None, call.where)
            jump = Instruction(("bra",), (Sym(skip),), (Reg(predicate), False), call.where)
            self.body += [compare, jump]
            self._direct(name, results, arguments, after, call)
            self.body += [Instruction(("bra",), (Sym(after),), None, call.where), Label(skip)]
        self.body.append(Instruction(("trap",), (), None, call.where))


def _formals(function: Function) -> tuple[Variable, ...]:
    return (*function.results, *function.parameters)


def _through_register(operands: tuple[Operand, ...]) -> bool:
    return any(isinstance(operand, Address) and isinstance(operand.base, Reg) for operand in operands)


class _Names:
    """The names of one inlined copy of a function."""

    def __init__(self, function: Function, suffix: str, bound: dict[str, str]) -> None:
        self.function, self.suffix, self.bound = function, suffix, bound
        self.labels = {item.name for item in function.body if isinstance(item, Label)} | set(function.branch_targets)

    def scratch(self, name: str) -> str:
        if name in self.bound:
            return self.bound[name]
        return name + self.suffix if name in self.function.variables else name

    def symbol(self, name: str) -> str:
        variable: Variable | None = self.function.variables.get(name)
        if variable is not None and variable.space == "shared":
            return name
        return name + self.suffix if name in self.labels else self.scratch(name)

    def guard(self, guard: tuple[Reg, bool] | None) -> tuple[Reg, bool] | None:
        return None if guard is None else (Reg(guard[0].name + self.suffix), guard[1])

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Reg):
            return Reg(operand.name + self.suffix)
        if isinstance(operand, Sym):
            return Sym(self.symbol(operand.name), operand.offset)
        if isinstance(operand, Address):
            base = self.operand(operand.base)
            assert isinstance(base, (Reg, Sym, Imm))
            return Address(base, operand.offset)
        if isinstance(operand, Vector):
            return Vector(tuple(self.operand(item) for item in operand.items))
        if isinstance(operand, Pair):
            return Pair(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, Not):
            return Not(Reg(operand.operand.name + self.suffix))
        return operand
