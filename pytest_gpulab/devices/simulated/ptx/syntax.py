"""PTX as plain data: a module's variables and functions, instructions with operands and source lines.

`reader` parses text into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytest_gpulab.devices.protocol import SourceLine

FUNCTION_STRIDE = 16  # bytes between the simulated addresses of functions
FUNCTION_BASE = 0x10  # not 0, which is the null pointer


@dataclass(slots=True, unsafe_hash=True)  # immutable by convention: creating a frozen one takes three times as long
class Reg:
    """A virtual register; names are unique in their function."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate: an integer, or the bits of a float (`bits` 32 or 64; 0 for an integer)."""

    value: int
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, function, label or special register, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """An address operand: `[base + offset]`."""

    base: Reg | Sym | Imm
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector operand: `{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of results: `a|b`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate: `!p`."""

    operand: Reg


Operand = Reg | Imm | Sym | Address | Vector | Pair | Not


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the items of a vector; another operand alone."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def registers_of(operands: Iterable[Operand]) -> list[str]:
    """Return the names of the registers in operands."""
    found = []
    for operand in operands:
        kind = type(operand)
        if kind is Reg:
            found.append(operand.name)  # type: ignore[union-attr]
        elif kind is not Imm and kind is not Sym:
            found += registers_of(_parts(operand))
    return found


def _parts(operand: Operand) -> Iterable[Operand]:
    if isinstance(operand, Vector):
        return operand.items
    if isinstance(operand, Pair):
        return operand.first, operand.second
    if isinstance(operand, Address):
        return (operand.base,)
    return (operand.operand,) if isinstance(operand, Not) else ()


@dataclass(slots=True, unsafe_hash=True)  # immutable by convention, as `Reg`
class Instruction:
    """An instruction."""

    op: tuple[str, ...]  # parts of the opcode, such as `("ld", "global", "f32")`
    operands: tuple[Operand, ...]  # operands in the written order; results come first
    guard: tuple[Reg, bool] | None = None  # predicate register, and True if it is negated
    where: SourceLine | None = None
    # position among the instructions and calls of the PTX text. Inlined copies keep it; instructions that the
    # translation adds have -1
    number: int = -1

    @property
    def name(self) -> str:
        """The opcode as written."""
        return ".".join(self.op)


@dataclass(frozen=True, slots=True)
class Label:
    """A jump target among a function's statements."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call."""

    callee: Sym | Reg  # function, or register with a function pointer
    results: tuple[str, ...]  # names of the `.param` variables that return them
    arguments: tuple[str, ...]  # names of the `.param` variables that pass them
    guard: tuple[Reg, bool] | None = None  # as in `Instruction`
    where: SourceLine | None = None  # as in `Instruction`
    number: int = -1  # as in `Instruction`


Statement = Instruction | Label | Call


@dataclass(frozen=True)
class Variable:
    """A declared variable."""

    name: str
    space: str  # state space, such as `global`, `shared` or `param`
    align: int  # in bytes
    nbytes: int  # size in bytes
    data: bytes = b""  # initial bytes
    pointers: tuple[tuple[int, str, int], ...] = ()  # (byte offset, symbol, addend) of each address in `data`


@dataclass
class Function:
    """A kernel (`entry`) or device function; `registers` maps names to PTX types."""

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class PtxModule:
    """A parsed PTX text; `files` maps file numbers to names."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)

    @property
    def function_addresses(self) -> dict[str, int]:
        """The simulated address of each function, for function pointers."""
        return {name: FUNCTION_BASE + FUNCTION_STRIDE * number for number, name in enumerate(self.functions)}

    @property
    def calls(self) -> Iterator[Call]:
        """The calls in all functions."""
        return (statement for function in self.functions.values() for statement in function.body
                if type(statement) is Call)  # fmt: skip


TYPE_BYTES = {
    f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64, 128) if not (kind == "f" and bits == 8)
} | {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4}
