"""Parameters between inlined functions. Without calls, their `.param` space does not exist.

If the pieces of a parameter that are accessed do not overlap, each piece becomes a register. If they overlap, or the
parameter's address is taken, the parameter becomes a variable in local memory.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import (
    TYPE_BYTES,
    Address,
    Call,
    Function,
    Instruction,
    Operand,
    Reg,
    Statement,
    Sym,
    Vector,
)
from pytest_gpulab.devices.simulated.translation.control.graph import MALFORMED, refusal

Piece = tuple[int, int]  # byte offset and size


def lower_parameters(kernel: Function) -> None:
    """Replace the accesses to passed parameters in an inlined kernel by registers or local memory.

    Raises CannotSimulate if a printf argument has overlapping pieces, or an access is malformed.
    """
    statement: Statement | None = None
    try:
        pieces: dict[str, set[Piece]] = defaultdict(set)
        for statement in kernel.body:
            for name, piece in _accesses(kernel, statement):
                pieces[name].add(piece)
        in_memory = {name for name, found in pieces.items() if _overlap(found)} | _addressed(kernel)
        for name in in_memory:
            kernel.variables[name] = kernel.variables[name]._replace(space="local")
        body: list[Statement] = []
        for statement in kernel.body:
            body += _rewritten(kernel, statement, in_memory)
        kernel.body[:] = body
    except MALFORMED:
        raise refusal(statement) from None


def _is_passed(kernel: Function, name: str) -> bool:
    variable = kernel.variables.get(name)
    return variable is not None and variable.space == "param"


def _access(statement: Statement) -> tuple[Address, tuple[Operand, ...], int] | None:
    """Return address, elements and element size of a load or store of a parameter."""
    if not isinstance(statement, Instruction) or statement.op[0] not in ("ld", "st") or statement.op[1] != "param":
        return None
    address, value = statement.operands if statement.op[0] == "st" else statement.operands[::-1]
    if not isinstance(address, Address):
        raise CannotSimulate("an address of this form", statement.where)
    return address, value.items if isinstance(value, Vector) else (value,), TYPE_BYTES[statement.op[-1]]


def _accesses(kernel: Function, statement: Statement) -> Iterator[tuple[str, Piece]]:
    access = _access(statement)
    if access is None:
        return
    address, items, size = access
    if isinstance(address.base, Sym) and _is_passed(kernel, address.base.name):
        start = address.base.offset + address.offset
        for k in range(len(items)):
            yield address.base.name, (start + k * size, size)


def _overlap(pieces: set[Piece]) -> bool:
    ordered = sorted(pieces)
    return any(first + size > second for (first, size), (second, _) in pairwise(ordered))


def _addressed(kernel: Function) -> set[str]:
    """Return the parameters with addresses that an instruction takes."""
    return {
        operand.name
        for statement in kernel.body
        if isinstance(statement, Instruction)
        for operand in statement.operands
        if isinstance(operand, Sym) and _is_passed(kernel, operand.name)
    }


def _rewritten(kernel: Function, statement: Statement, in_memory: set[str]) -> Iterator[Statement]:
    if isinstance(statement, Call) and in_memory.intersection(statement.arguments):
        raise CannotSimulate("a printf argument in overlapping pieces", statement.where)
    access = _access(statement)
    if access is None or not isinstance(statement, Instruction):
        yield statement
        return
    address, items, size = access
    name = address.base.name if isinstance(address.base, Sym) else ""
    if name in in_memory:
        yield statement._replace(op=(statement.op[0], "local", *statement.op[2:]))
    elif _is_passed(kernel, name):
        start = address.base.offset + address.offset if isinstance(address.base, Sym) else 0
        for k, item in enumerate(items):
            yield _move(kernel, f"{name}+{start + k * size}", item, statement)
    else:
        yield statement


def _move(kernel: Function, register: str, item: Operand, access: Instruction) -> Instruction:
    kind = access.op[-1]
    kernel.registers.setdefault(register, kind)
    size = TYPE_BYTES[kind]
    pair = (Reg(register), item) if access.op[0] == "st" else (item, Reg(register))
    return access._replace(op=("mov", f"b{8 * size}" if size > 1 else "u8"), operands=pair)
