"""Read PTX text: variables, functions, instructions with operands and source lines.

Knows the grammar only, not what an instruction does. The grammar is that of the PTX ISA manual, chapters 4
and 5, as far as NVRTC and inline assembly use it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import (
    TYPE_BYTES,
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

_LINE_DIRECTIVES = (".version", ".target", ".address_size", ".file", ".loc")
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[;{}]|[^;{}"]+')
_LABEL = re.compile(r"\s*([\w$%.]+)\s*:(?!:)\s*")
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")
_VARIABLE = re.compile(
    r"(?P<link>(?:\.(?:extern|visible|weak|common)\s+)*)\.(?P<space>global|const|shared|local|param)"
    r"(?:\s*\.attribute\([^)]*\))?(?:\s*\.align\s+(?P<align>\d+))?(?:\s*\.ptr(?:\s*\.\w+)*(?:\s*\.align\s+\d+)?)?"
    r"\s*\.(?P<type>\w+)(?:\s*\.ptr(?:\s*\.(?:global|const|shared|local))?(?:\s*\.align\s+\d+)?)?"
    r"\s+(?P<name>[\w$%]+)(?P<dims>(?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)
_FUNCTION = re.compile(
    r"(?:\.(?:extern|visible|weak)\s+)*\.(?P<kind>entry|func)\s*(?:\((?P<results>[^)]*)\))?\s*"
    r"(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?",
    re.S,
)
_CALL = re.compile(
    r"call(?:\.uni)?\s*(?:\((?P<results>[^)]*)\)\s*,)?\s*(?P<callee>[\w$%]+)\s*(?:,\s*\((?P<arguments>[^)]*)\))?", re.S
)
_OPERAND_SPLIT = re.compile(r",(?![^\[{]*[\]}])")


def parse(text: str) -> PtxModule:
    """Read a PTX text.

    Raises:
        CannotSimulate: for a construct outside the grammar known here.
    """
    return _Parser().run(text)


def _pieces(text: str) -> Iterator[str]:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    lines = []
    for line in text.split("\n"):
        line = re.sub(r'^((?:[^"]|"(?:[^"\\]|\\.)*")*?)//.*$', r"\1", line) if "//" in line else line
        stripped = line.strip()
        if stripped.startswith(".section"):
            break  # debug sections close the text
        lines.append(stripped + ";" if stripped.startswith(_LINE_DIRECTIVES) else stripped)
    return iter(_PIECE.findall("\n".join(lines)))


@dataclass
class _Scope:
    """What is declared between braces: where its statements start, unique names, labels and jump tables among them."""

    start: int
    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)

    def bind_jumps(self, function: Function) -> None:
        """Give jumps to labels that were still to come their unique names."""
        body = function.body
        for table in self.tables:
            targets = function.branch_targets[table]
            function.branch_targets[table] = tuple(self.labels.get(target, target) for target in targets)
        for index in range(self.start, len(body)):
            jump = body[index]
            if isinstance(jump, Instruction) and jump.op[0] == "bra" and isinstance(jump.operands[0], Sym):
                label = self.labels.get(jump.operands[0].name)
                if label is not None:
                    body[index] = replace(jump, operands=(Sym(label),))


class _Parser:
    """Walks the text once, keeping the function, the scope and the source line that it is in."""

    def __init__(self) -> None:
        self.module = PtxModule()
        self.function: Function | None = None
        self.scopes: list[_Scope] = []
        self.where: SourceLine | None = None
        self.serial = 0
        self.number = -1  # of the last instruction or call

    def run(self, text: str) -> PtxModule:
        for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M):
            self.module.files[int(number)] = name
        pending = ""
        nested = 0  # braces inside a statement: initialisers and vector operands
        for piece in _pieces(text):
            if piece == "{" and (nested or not self._opens_scope(pending)):
                nested += 1
                pending += piece
            elif piece == "{":
                self._open(pending)
                pending = ""
            elif piece == "}" and nested:
                nested -= 1
                pending += piece
            elif piece == "}":
                self._close()
            elif piece == ";" and not nested:
                self._statement(pending.strip())
                pending = ""
            else:
                pending += piece
        return self.module

    def _opens_scope(self, pending: str) -> bool:
        while match := _LABEL.match(pending):
            pending = pending[match.end() :]
        return not pending.strip() or (self.function is None and "=" not in pending)

    def _open(self, head: str) -> None:
        if self.function is None:
            self.function = self._declare(head)
        else:
            self._labels(head)
        self.scopes.append(_Scope(len(self.function.body)))

    def _close(self) -> None:
        scope = self.scopes.pop()
        if not self.scopes:
            self.function = None
        elif scope.labels and self.function is not None:
            scope.bind_jumps(self.function)

    def _declare(self, head: str) -> Function:
        match = _FUNCTION.search(head)
        if match is None:
            raise CannotSimulate(f"the PTX declaration {head.strip()[:80]!r}")
        function = Function(
            match["name"],
            match["kind"] == "entry",
            tuple(_variable(text) for text in _split(match["parameters"])),
            tuple(_variable(text) for text in _split(match["results"])),
        )
        self.module.functions[function.name] = function
        return function

    def _statement(self, text: str) -> None:
        if self.function is not None:
            text = self._labels(text)
        if not text:
            return
        if text[0] == ".":
            self._directive(text)
        elif self.function is not None:
            try:
                self.function.body.append(self._instruction(text))
            except (ValueError, IndexError):
                raise CannotSimulate(f"the PTX statement {text!r}", self.where) from None

    def _labels(self, text: str) -> str:
        assert self.function is not None
        while match := _LABEL.match(text):
            rest = text[match.end() :]
            if rest.startswith((".branchtargets", ".calltargets", ".callprototype")):
                if rest.startswith(".branchtargets"):
                    table = self._bind(match[1]) if len(self.scopes) > 1 else match[1]
                    self.scopes[-1].tables.append(table)
                    self.function.branch_targets[table] = tuple(_split(rest.split(None, 1)[1]))
                return ""
            label = self._bind(match[1]) if len(self.scopes) > 1 else match[1]
            self.scopes[-1].labels[match[1]] = label
            self.function.body.append(Label(label))
            text = rest
        return text.strip()

    def _directive(self, text: str) -> None:
        if re.match(r"\.loc\b", text):
            self._location(text)
        elif re.match(r"\.reg\b", text):
            self._registers(text)
        elif self.function is None and re.search(r"\.(func|entry)\b", text):
            self._declare_only(text)
        elif match := _VARIABLE.match(text):
            self._declare_variable(match, text)

    def _declare_only(self, text: str) -> None:
        match = _FUNCTION.search(text)
        if match is not None and match["name"] not in self.module.functions:
            self._declare(text)

    def _declare_variable(self, match: re.Match[str], text: str) -> None:
        variable = _variable(text)
        if self.function is None:
            self.module.variables[variable.name] = variable
            return
        name = self._bind(variable.name) if len(self.scopes) > 1 else variable.name
        self.function.variables[name] = Variable(
            name, variable.space, variable.align, variable.nbytes, variable.data, variable.pointers
        )

    def _location(self, text: str) -> None:
        numbers = text.split(",")[0].split()
        line = int(numbers[2])
        if line:  # line 0 is the compiler's "nowhere in particular": keep the last real line
            self.where = SourceLine(self.module.files.get(int(numbers[1]), numbers[1]), line)

    def _registers(self, text: str) -> None:
        assert self.function is not None
        match = re.match(r"\.reg\s*(?:\.v[248]\s*)?\.(\w+)\s+(.*)", text, re.S)
        if match is None:
            raise CannotSimulate(f"the PTX declaration {text!r}", self.where)
        for name in _split(match[2]):
            ranged = re.match(r"([\w$%]+)<(\d+)>", name)
            names = [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name]
            for one in names:
                self.function.registers[self._bind(one) if len(self.scopes) > 1 else one] = match[1]

    def _bind(self, name: str) -> str:
        self.serial += 1
        self.scopes[-1].names[name] = f"{name}@{self.serial}"
        return self.scopes[-1].names[name]

    def _name(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def _instruction(self, text: str) -> Instruction | Call:
        guard = None
        self.number += 1
        if match := _GUARD.match(text):
            guard = (Reg(self._name(match[2])), match[1] == "!")
            text = text[match.end() :]
        if re.match(r"call\b", text):
            return self._call(text, guard)
        opcode, _, rest = text.partition(" ") if " " in text else text.partition("\t")
        opcode, _, extra = opcode.partition("\t")
        operands = tuple(self._operand(part) for part in _split(f"{extra} {rest}"))
        return Instruction(tuple(opcode.replace("::", "__").split(".")), operands, guard, self.where, self.number)

    def _call(self, text: str, guard: tuple[Reg, bool] | None) -> Call:
        match = _CALL.match(text)
        if match is None:
            raise CannotSimulate(f"the PTX call {text!r}", self.where)
        callee = self._named(match["callee"])
        results, arguments = (
            tuple(self._name(name) for name in _split(match[group])) for group in ("results", "arguments")
        )
        return Call(callee, results, arguments, guard, self.where, self.number)

    def _operand(self, text: str) -> Operand:
        text = text.strip()
        first = text[0]
        if first == "[":
            return self._address(text[1:-1])
        if first == "{":
            return Vector(tuple(self._operand(item) for item in _split(text[1:-1])))
        if first == "!":
            inner = self._operand(text[1:])
            if not isinstance(inner, Reg):
                raise ValueError(text)
            return Not(inner)
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self._operand(left), self._operand(right))
        if first.isdigit() or (first in "+-" and len(text) > 1):
            return _immediate(text)
        return self._named(text)

    def _named(self, text: str) -> Reg | Sym:
        base, plus, offset = text.partition("+")
        name = self._name(base.strip())
        if self.function is not None and name in self.function.registers:
            return Reg(name)
        return Sym(name, int(offset, 0) if plus else 0)

    def _address(self, text: str) -> Address:
        match = re.match(r"\s*([^+\s]+)\s*(?:\+\s*(-?\w+))?\s*$", text)
        if match is None:
            raise CannotSimulate(f"the PTX address [{text}]", self.where)
        base = self._operand(match[1])
        if not isinstance(base, (Reg, Sym, Imm)):
            raise ValueError(text)
        return Address(base, int(match[2], 0) if match[2] else 0)


def _split(text: str | None) -> list[str]:
    if not text or not text.strip():
        return []
    return [part.strip() for part in _OPERAND_SPLIT.split(text)]


def _immediate(text: str) -> Imm:
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-")
    if body[:2] in ("0f", "0F"):
        return Imm(int(body[2:], 16) ^ (0x80000000 if sign < 0 else 0), 32)
    if body[:2] in ("0d", "0D"):
        return Imm(int(body[2:], 16) ^ (1 << 63 if sign < 0 else 0), 64)
    if "." in body or (("e" in body or "E" in body) and not body.lower().startswith("0x")):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    body = body.rstrip("U")
    if len(body) > 1 and body[0] == "0" and body.isdigit():
        return Imm(sign * int(body, 8))
    return Imm(sign * int(body, 0))


def _variable(text: str) -> Variable:
    match = _VARIABLE.match(text.strip())
    if match is None:
        raise CannotSimulate(f"the PTX declaration {text.strip()[:80]!r}")
    size = TYPE_BYTES.get(match["type"], 8)
    count = 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dims"]):
        count *= int(dimension or 0)
    data, pointers = _initialiser(match["init"], match["type"], size) if match["init"] else (b"", ())
    align = int(match["align"] or size)
    return Variable(match["name"], match["space"], align, size * count, data, pointers, ".extern" in match["link"])


def _initialiser(text: str, kind: str, size: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    """Return the initial bytes, and (byte offset, symbol, addend) of every address among them."""
    data = bytearray()
    pointers = []
    # not `_split`, which looks for brackets at each comma, in a table to its end
    for item in filter(None, map(str.strip, re.sub("[{}]", " ", text).split(","))):
        name = re.match(r"(?:generic\(([\w$]+)\)|([A-Za-z_$][\w$]*))(?:\s*\+\s*(\d+))?$", item)
        if name:
            pointers.append((len(data), name[1] or name[2], int(name[3] or 0)))
            data += bytes(size)
            continue
        value = _immediate(item).value
        data += (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return bytes(data), tuple(pointers)
