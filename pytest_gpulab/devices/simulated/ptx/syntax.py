"""PTX as plain data: a module's variables and functions, instructions with operands and source lines.

`reader` parses text into it, from the pieces at the end of this module: statements without comments, declarations of
variables, number literals.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine

FUNCTION_STRIDE = 16  # bytes between the simulated addresses of functions
FUNCTION_BASE = 0x10  # not 0, which is the null pointer


class Reg(NamedTuple):
    """A virtual register; names are unique in their function."""

    name: str


class Imm(NamedTuple):
    """An immediate: an integer, or the bits of a float (`bits` 32 or 64; 0 for an integer)."""

    value: int
    bits: int = 0


class Sym(NamedTuple):
    """A variable, function, label or special register, plus a byte offset."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """An address operand: `[base + offset]`."""

    base: Reg | Sym | Imm
    offset: int


class Vector(NamedTuple):
    """A vector operand: `{a, b, ...}`."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """A pair of results: `a|b`."""

    first: Operand
    second: Operand


class Not(NamedTuple):
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


class Instruction(NamedTuple):
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


class Label(NamedTuple):
    """A jump target among a function's statements."""

    name: str


class Call(NamedTuple):
    """A call."""

    callee: Sym | Reg  # function, or register with a function pointer
    results: tuple[str, ...]  # names of the `.param` variables that return them
    arguments: tuple[str, ...]  # names of the `.param` variables that pass them
    guard: tuple[Reg, bool] | None = None  # as in `Instruction`
    where: SourceLine | None = None  # as in `Instruction`
    number: int = -1  # as in `Instruction`


Statement = Instruction | Label | Call


class Variable(NamedTuple):
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


# one alternation, so that the first opening wins: `// /*` is a line comment, and `"//"` a string
_COMMENT_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LINE_DIRECTIVE = re.compile(r"^[ \t]*\.(?:version|target|address_size|file|loc)\b[^\n]*", re.M)
_PIECE = re.compile(r'([^;{}"]*)("(?:[^"\\\n]|\\.)*"|[;{}"]|\Z)', re.S)
_OPENING, _CLOSING = "([{", ")]}"


def without_comments(text: str) -> str:
    """Return the text with a space in place of each comment, as in the assembler."""
    return _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)


def pieces(text: str) -> list[tuple[str, str]]:
    """Split a text without comments at each `;`, `{`, `}` and string, into pairs of the text before and the separator.

    Directives that end with their line get a semicolon.
    """
    text = _LINE_DIRECTIVE.sub(lambda match: match[0] + ";", text)
    if any(separator in string for string in _STRING.findall(text) for separator in ";{}"):
        return _PIECE.findall(text)
    found = []
    for statement in text.split(";"):  # most have no other separator
        if "{" in statement or "}" in statement or '"' in statement:
            found += _PIECE.findall(f"{statement};")[:-1]
        else:
            found.append((statement, ";"))
    return [*found[:-1], (found[-1][0], "")]


def parts(text: str) -> list[str]:
    """Split at commas outside of brackets, and strip the parts."""
    return [part.strip() for part in split(text)]


def split(text: str | None) -> list[str]:
    """Split at commas outside of brackets; the parts may keep surrounding spaces."""
    if not text or text.isspace():
        return []
    if "{" not in text and "[" not in text and "(" not in text:
        return text.split(",")
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


VARIABLE = re.compile(
    r"(?:\.(?:extern|visible|weak|common)\s+)*\.(?P<space>global|const|shared|local|param)"
    r"(?:\s*\.attribute\([^)]*\))?(?:\s*\.align\s+(?P<align>\d+))?(?:\s*\.ptr(?:\s*\.\w+)*(?:\s*\.align\s+\d+)?)?"
    r"\s*\.(?P<type>\w+)(?:\s*\.ptr(?:\s*\.(?:global|const|shared|local))?(?:\s*\.align\s+\d+)?)?"
    r"\s+(?P<name>[\w$%]+)(?P<dims>(?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)


_NUMBERS = re.compile(r"(?:(?:0|[1-9]\d*),)*(?:0|[1-9]\d*)")


def immediate(text: str) -> Imm:
    """Parse a number: decimal, octal, hexadecimal, or a float written in digits or as its bits."""
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-")
    if body[:2] in ("0f", "0F"):
        return Imm(_float_bits(body, 32) ^ (0x80000000 if sign < 0 else 0), 32)
    if body[:2] in ("0d", "0D"):
        return Imm(_float_bits(body, 64) ^ (1 << 63 if sign < 0 else 0), 64)
    if "." in body or (("e" in body or "E" in body) and not body.lower().startswith("0x")):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    body = body.rstrip("U")
    if len(body) > 1 and body[0] == "0" and body.isdigit():
        return Imm(sign * int(body, 8))
    return Imm(sign * int(body, 0))


def _float_bits(text: str, bits: int) -> int:
    if len(text) != 2 + bits // 4:
        raise ValueError(text)
    return int(text[2:], 16)


def variable_of(text: str) -> Variable:
    """Parse the declaration of a variable or parameter; raise CannotSimulate or ValueError if it is invalid."""
    match = VARIABLE.match(text.strip())
    if match is None:
        raise CannotSimulate(f"the PTX declaration {text.strip()[:80]!r}")
    size = TYPE_BYTES.get(match["type"], 8)
    count = 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
        count *= int(dimension or 0)
    data, pointers = _initialiser(match["init"], size) if match["init"] else (b"", ())
    align = int(match["align"] or size)
    nbytes = size * count or len(data)
    if len(data) > nbytes or not align or align & (align - 1) or (pointers and size != 8):
        raise ValueError(text)
    return Variable(match["name"], match["space"], align, nbytes, data, pointers)


def _initialiser(text: str, size: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    """Return the initial bytes, and (byte offset, symbol, addend) per address in them."""
    digits = re.sub(r"[{}\s]", "", text)
    if size == 1 and _NUMBERS.fullmatch(digits):  # as NVRTC writes tables of any type, which are long
        return bytes(int(item) & 0xFF for item in digits.split(",")), ()
    data = bytearray()
    pointers = []
    for item in filter(None, map(str.strip, re.sub("[{}]", " ", text).split(","))):
        name = re.match(r"(?:generic\(([\w$]+)\)|([A-Za-z_$][\w$]*))(?:\s*\+\s*(\d+))?$", item)
        if name:
            pointers.append((len(data), name[1] or name[2], int(name[3] or 0)))
            data += bytes(size)
            continue
        value = immediate(item).value
        data += (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return bytes(data), tuple(pointers)
