"""Turn a kernel and every device function it calls into one list of statements without calls.

What is left of calls are the few functions that the driver provides (`vprintf`, `__assertfail`); how parameters get
from one function to another is settled in `passing`.
"""

from __future__ import annotations

from dataclasses import replace
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
    Sym,
    Variable,
    Vector,
)
from pytest_gpulab.devices.simulated.translation.passing import settle

BUILT_IN = ("vprintf", "__assertfail")
MAX_DEPTH = 32
FUNCTION_STRIDE = 16  # bytes between the made-up addresses of functions, see `function_address`
FUNCTION_BASE = 0x10


def function_address(module: PtxModule, name: str) -> int:
    """Return the address that stands for a device function in a function pointer."""
    return FUNCTION_BASE + FUNCTION_STRIDE * list(module.functions).index(name)


def inline(module: PtxModule, kernel: Function) -> Function:
    """Return the kernel with every call replaced by the callee's statements.

    Raises:
        CannotSimulate: recursion, an unknown external function.
    """
    return _Inliner(module, kernel).run()


class _Inliner:
    def __init__(self, module: PtxModule, kernel: Function) -> None:
        self.module = module
        self.kernel = kernel
        self.result = Function(kernel.name, True, kernel.parameters, ())
        self.serial = count(1)

    def run(self) -> Function:
        self._expand(self.kernel, "", {}, "", 0)
        settle(self.result)
        return self.result

    def _expand(self, function: Function, suffix: str, bound: dict[str, str], end: str, depth: int) -> None:
        """Append a function's statements; `bound` maps its parameters to the caller's scratch names."""
        self.result.registers.update({name + suffix: kind for name, kind in function.registers.items()})
        for variable in function.variables.values():
            # a function's local memory is a new instance per inlined copy; its shared memory is one for all
            tail = suffix if variable.space != "shared" else ""
            name = variable.name + tail
            self.result.variables[name] = replace(variable, name=name)
        for label, targets in function.branch_targets.items():
            self.result.branch_targets[label + suffix] = tuple(target + suffix for target in targets)
        scope = _Names(function, suffix, bound)
        for statement in function.body:
            if isinstance(statement, Label):
                self.result.body.append(Label(statement.name + suffix))
            elif isinstance(statement, Call):
                self._call(statement, scope, depth)
            else:
                self._instruction(statement, scope, end)

    def _instruction(self, instruction: Instruction, names: _Names, end: str) -> None:
        operands = tuple(names.operand(operand) for operand in instruction.operands)
        guard = names.guard(instruction.guard)
        op = instruction.op
        if op[0] in ("ret", "exit") and end and op[0] == "ret":
            op, operands = ("bra",), (Sym(end),)
        elif op[:2] == ("ld", "param") and not names.function.entry and _through_register(operands):
            # the address of a function's own parameter: `passing` puts such a parameter into local memory
            op = ("ld", "local", *op[2:])
        self.result.body.append(replace(instruction, op=op, operands=operands, guard=guard))

    def _call(self, call: Call, names: _Names, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise CannotSimulate(f"recursion, or calls more than {MAX_DEPTH} deep", call.where)
        results, arguments = tuple(map(names.scratch, call.results)), tuple(map(names.scratch, call.arguments))
        after = f"$after~{next(self.serial)}"
        if call.guard is not None:
            register, negated = call.guard
            inverse = names.guard((register, not negated))
            self.result.body.append(Instruction(("bra",), (Sym(after),), inverse, call.where))
        if isinstance(call.callee, Reg):
            self._indirect(call, names, results, arguments, after, depth)
        else:
            self._direct(call.callee.name, results, arguments, after, call, depth)
        self.result.body.append(Label(after))

    def _direct(
        self,
        name: str,
        results: tuple[str, ...],
        arguments: tuple[str, ...],
        after: str,
        call: Call,
        depth: int,
    ) -> None:
        callee = self.module.functions.get(name)
        if name in BUILT_IN:
            self.result.body.append(Call(Sym(name), results, arguments, None, call.where, call.number))
        elif callee is None or not callee.body:
            raise CannotSimulate(f"a call of {name}()", call.where)
        else:
            formals = [parameter.name for parameter in (*callee.results, *callee.parameters)]
            bound = dict(zip(formals, (*results, *arguments), strict=True))
            self._expand(callee, f"~{next(self.serial)}", bound, after, depth + 1)

    def _indirect(
        self,
        call: Call,
        names: _Names,
        results: tuple[str, ...],
        arguments: tuple[str, ...],
        after: str,
        depth: int,
    ) -> None:
        """Compare the pointer with every function of parameters of these sizes, and jump to the one it names."""
        assert isinstance(call.callee, Reg)
        pointer = names.operand(call.callee)
        passed = [names.function.variables[name].nbytes for name in (*call.results, *call.arguments)]
        for name, function in self.module.functions.items():
            declared = [variable.nbytes for variable in (*function.results, *function.parameters)]
            if function.entry or not function.body or declared != passed:
                continue
            predicate, skip = f"%p~{next(self.serial)}", f"$skip~{next(self.serial)}"
            self.result.registers[predicate] = "pred"
            address = Imm(function_address(self.module, name))
            compare = Instruction(("setp", "ne", "u64"), (Reg(predicate), pointer, address), None, call.where)
            jump = Instruction(("bra",), (Sym(skip),), (Reg(predicate), False), call.where)
            self.result.body += [compare, jump]
            self._direct(name, results, arguments, after, call, depth)
            self.result.body += [Instruction(("bra",), (Sym(after),), None, call.where), Label(skip)]
        self.result.body.append(Instruction(("trap",), (), None, call.where))


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
