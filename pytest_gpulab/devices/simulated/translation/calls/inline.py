"""Inlining: a kernel and the device functions that it calls become one list of statements without calls.

Only calls of driver functions remain (`vprintf`, `__assertfail`, `malloc`, `free`). `passing` rewrites parameters,
`recursion` handles recursive functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

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
from pytest_gpulab.devices.simulated.translation.control.graph import MALFORMED, REFUSED, refusal
from pytest_gpulab.devices.source.names import unmangle

from .recursion import Frame, StackCall, candidates, link, recursive

RETURN_JUMP, INDIRECT_RETURN_JUMP = ("bra", "ret"), ("bra", "call", "ret")
"""Opcodes of jumps in place of returns: from a function, and from one that was called through a pointer."""
BUILT_IN = ("vprintf", "__assertfail", "malloc", "free")
DEVICE_RUNTIME = "__cudaCDP2"  # replaces `cuda` in the names of the runtime library's functions in kernels
MAX_DEPTH = 32
MAX_STATEMENTS = 100_000  # of a kernel with inlined functions; bounds memory and translation time


def undefined(module: PtxModule) -> str | None:
    """Return the compiler's message for a function that is called but not defined; nvcc refuses such a file."""
    for call in module.calls:
        name = call.callee.name if isinstance(call.callee, Sym) else ""
        called = module.functions.get(name)
        known = name in (*BUILT_IN, "alloca") or name.startswith(DEVICE_RUNTIME)
        if called is not None and not called.body and not known:
            place = f"{call.where.file}({call.where.line}): " if call.where else ""
            from pytest_gpulab.devices.compiler.static_limits import defined_nowhere

            return f"{place}error: {defined_nowhere(name)}"
    return None


def inline(
    module: PtxModule, kernel: Function, frame_bytes: Callable[[], Mapping[str, int]] = dict
) -> tuple[Function, list[StackCall]]:
    """Return the kernel with every call replaced by the callee's statements, and its calls of recursive functions.

    A call with too many statements is refused only if a thread executes it. `frame_bytes` returns the stack frame of
    each function in machine code, in bytes; it is called only for kernels with recursion. Raises CannotSimulate for an
    unknown external function or a malformed statement.
    """
    return _Inliner(module, kernel).run(frame_bytes)


class _Sizes:
    """Numbers of statements per function after inlining; a call of a recursive function counts as one."""

    def __init__(self, module: PtxModule, recursive_ones: frozenset[str]) -> None:
        self.module, self.recursive = module, recursive_ones
        self.known: dict[str, int] = {}

    def of(self, name: str, depth: int = 0) -> int:
        function = self.module.functions.get(name)
        if function is None or depth > MAX_DEPTH or (depth and name in self.recursive):
            return 1
        if name not in self.known:
            calls = [statement for statement in function.body if isinstance(statement, Call)]
            reached = (name for call in calls for name in candidates(self.module, function, call))
            self.known[name] = len(function.body) + sum(self.of(callee, depth + 1) for callee in reached)
        return self.known[name]


class _Inliner:
    def __init__(self, module: PtxModule, kernel: Function) -> None:
        self.module = module
        self.kernel = kernel
        self.result = Function(kernel.name, True, kernel.parameters, ())
        self.body = self.result.body  # receives statements: of the kernel or of a recursive function
        self.made = 0  # statements in the earlier bodies
        self.serial = count(1)
        self.recursive = recursive(module)
        self.frames: dict[str, Frame] = {}
        self.sizes = _Sizes(module, self.recursive)
        self.open: list[str] = []  # the functions that are being inlined, the outermost first

    def run(self, frame_bytes: Callable[[], Mapping[str, int]]) -> tuple[Function, list[StackCall]]:
        self._expand(self.kernel, "", {}, None)
        done = 0
        while done < len(self.frames):
            self._copy(list(self.frames.values())[done])
            done += 1
        calls = link(self.result, list(self.frames.values()), frame_bytes()) if self.frames else []
        if any(variable.space == "param" for variable in self.result.variables.values()):
            from .passing import lower_parameters

            lower_parameters(self.result)
        return self.result, calls

    def _copy(self, frame: Frame) -> None:
        """Expand the only copy of a recursive function."""
        self.made += len(self.body)
        self.body = frame.body
        own = {variable.name: variable.name + frame.suffix for variable in _formals(frame.function)}
        self._expand(frame.function, frame.suffix, own, Instruction(("bra",), (Sym(frame.end),)))
        self.body.append(Label(frame.end))

    def _expand(self, function: Function, suffix: str, bound: dict[str, str], back: Instruction | None) -> None:
        """Append a function's statements; `bound` are the caller's names of its parameters, `back` is its return."""
        self.result.registers.update({name + suffix: kind for name, kind in function.registers.items()})
        for variable in function.variables.values():
            # each inlined copy has its own local variables; shared variables are common to all copies
            tail = suffix if variable.space != "shared" else ""
            name = variable.name + tail
            self.result.variables[name] = variable._replace(name=name)
        for label, targets in function.branch_targets.items():
            self.result.branch_targets[label + suffix] = tuple(target + suffix for target in targets)
        names = _Names(function, suffix, bound)
        self.open.append(function.name)
        statement: Statement | None = None
        try:
            if not suffix and not any(type(statement) is Call for statement in function.body):
                self.body += function.body  # the kernel's own statements keep their names
            else:
                for statement in function.body:
                    self._statement(statement, names, back)
        except MALFORMED:
            raise refusal(statement) from None
        self.open.pop()

    def _statement(self, statement: Statement, names: _Names, back: Instruction | None) -> None:
        if isinstance(statement, Label):
            self.body.append(Label(statement.name + names.suffix))
        elif isinstance(statement, Call):
            self._call(statement, names)
        elif names.suffix:
            self._instruction(statement, names, back)
        else:  # the kernel's own statements keep their names
            self.body.append(statement)

    def _instruction(self, instruction: Instruction, names: _Names, back: Instruction | None) -> None:
        operands = tuple(names.operand(operand) for operand in instruction.operands)
        guard = names.guard(instruction.guard)
        op = instruction.op
        if op[0] == "ret" and back is not None:
            op, operands = back.op, back.operands
        elif op[:2] == ("ld", "param") and not names.function.entry and _through_register(operands):
            # an address of the function's own parameter: `passing` puts such a parameter into local memory
            op = ("ld", "local", *op[2:])
        self.body.append(instruction._replace(op=op, operands=operands, guard=guard))

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
            self._direct(call.callee.name, results, arguments, Instruction(RETURN_JUMP, (Sym(after),)), call)
        self.body.append(Label(after))

    def _direct(
        self, name: str, results: tuple[str, ...], arguments: tuple[str, ...], back: Instruction, call: Call
    ) -> None:
        callee = self.module.functions.get(name)
        if name in BUILT_IN:
            self.body.append(Call(Sym(name), results, arguments, None, call.where, call.number))
        elif callee is None or not callee.body:
            raise CannotSimulate(f"a call of {name.replace(DEVICE_RUNTIME, 'cuda')}()", call.where)
        elif name in self.recursive:
            if name not in self.frames:
                self.frames[name] = Frame(callee, f"~{next(self.serial)}")
            self.body.append(Call(Sym(name), results, arguments, None, call.where, call.number))
        elif (reason := self._reason_to_refuse(name)) is not None:
            self.body.append(Instruction((REFUSED, f"a call of {unmangle(name)}(): {reason}"), (), None, call.where))
        else:
            formals = [parameter.name for parameter in _formals(callee)]
            bound = dict(zip(formals, (*results, *arguments), strict=True))
            self._expand(callee, f"~{next(self.serial)}", bound, back)

    def _reason_to_refuse(self, name: str) -> str | None:
        """Return the reason why a call is not inlined, if there is one."""
        if len(self.open) > MAX_DEPTH:
            return f"more than {MAX_DEPTH} nested calls"
        if self.made + len(self.body) + self.sizes.of(name) > MAX_STATEMENTS:
            return f"more than {MAX_STATEMENTS:,} instructions after inlining"
        return None

    def _indirect(
        self, call: Call, names: _Names, results: tuple[str, ...], arguments: tuple[str, ...], after: str
    ) -> None:
        """Compare the pointer with each function with parameters of these sizes, and expand a call for each."""
        assert isinstance(call.callee, Reg)
        pointer = names.operand(call.callee)
        for name in candidates(self.module, names.function, call):
            predicate, skip = f"%p~{next(self.serial)}", f"$skip~{next(self.serial)}"
            self.result.registers[predicate] = "pred"
            address = Imm(self.module.function_addresses[name])
            compare = Instruction(("setp", "ne", "u64"), (Reg(predicate), pointer, address), None, call.where)
            jump = Instruction(("bra",), (Sym(skip),), (Reg(predicate), False), call.where)
            self.body += [compare, jump]
            self._direct(name, results, arguments, Instruction(INDIRECT_RETURN_JUMP, (Sym(after),)), call)
            self.body += [Instruction(("bra",), (Sym(after),), None, call.where), Label(skip)]
        self.body.append(Instruction(("trap",), (), None, call.where))


def _formals(function: Function) -> tuple[Variable, ...]:
    return (*function.results, *function.parameters)


def _through_register(operands: tuple[Operand, ...]) -> bool:
    return any(isinstance(operand, Address) and isinstance(operand.base, Reg) for operand in operands)


class _Names:
    """The unique names in one inlined copy of a function."""

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
