"""PTX as plain data: a module's variables and functions, instructions with operands and source lines.

`ptx_reader` makes it of text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_gpulab.devices.protocol import SourceLine


@dataclass(slots=True, unsafe_hash=True)  # never changed; a frozen one takes three times as long to make
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
    """A variable, function, label or special register, with a byte offset where one is added."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`."""

    base: Reg | Sym | Imm
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a negated predicate operand."""

    operand: Reg


Operand = Reg | Imm | Sym | Address | Vector | Pair | Not


@dataclass(slots=True, unsafe_hash=True)  # never changed, as `Reg`
class Instruction:
    """One instruction: opcode parts such as `("ld", "global", "f32")`, operands, guard `(register, negated)`, line.

    `number` counts the instructions and calls of a PTX text; copies that inlining makes keep it, what translation adds
    has none (-1).
    """

    op: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Reg, bool] | None = None
    where: SourceLine | None = None
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
    """A call: parameter scratch names in and out, and the callee (a name, or a register with a prototype)."""

    callee: Sym | Reg
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    guard: tuple[Reg, bool] | None = None
    where: SourceLine | None = None
    number: int = -1


Statement = Instruction | Label | Call


@dataclass(frozen=True)
class Variable:
    """A declared variable: space, alignment and size in bytes, initial bytes, and symbols whose addresses it holds."""

    name: str
    space: str
    align: int
    nbytes: int
    data: bytes = b""
    pointers: tuple[tuple[int, str, int], ...] = ()
    external: bool = False


@dataclass
class Function:
    """A kernel or device function."""

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
    """A whole PTX text."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)


TYPE_BYTES = {
    f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64, 128) if not (kind == "f" and bits == 8)
} | {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4}
