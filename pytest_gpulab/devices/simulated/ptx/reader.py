"""The PTX parser: variables, functions, instructions with operands and source lines.

It implements the grammar of the PTX ISA manual, chapters 4 and 5, as far as NVRTC and inline assembly use it. The
meaning of instructions is defined in `translation`.
"""

import re
from dataclasses import dataclass, field
from string import digits

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.system.processes import without_collector

from .source_lines import Unplaced
from .syntax import (
    VARIABLE,
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
    Vector,
    immediate,
    parts,
    pieces,
    split,
    variable_of,
    without_comments,
)

_LABEL = re.compile(r"\s*([\w$%.]+)\s*:(?!:)\s*")
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")
_FUNCTION = re.compile(
    r"(?:\.(?:extern|visible|weak)\s+)*\.(?P<kind>entry|func)\s*(?:\((?P<results>[^)]*)\))?\s*"
    r"(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?",
    re.S,
)
_CALL = re.compile(
    r"call(?:\.uni)?\s*(?:\((?P<results>[^)]*)\)\s*,)?\s*(?P<callee>[\w$%]+)\s*(?:,\s*\((?P<arguments>[^)]*)\))?", re.S
)
_INLINED = re.compile(r"inlined_at (\d+) (\d+) (\d+)")
_TOOLKIT = re.compile("/include/|^__nv_nvrtc_builtin_header")  # NVIDIA's headers; a submission's headers have no folder
_FILE = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_RANGE = re.compile(r"([\w$%]+)<(\d+)>")
_DIRECTIVE = re.compile(r"\.(\w+)")
_HARMLESS = ("pragma", "version", "target", "address_size", "file", "noreturn", "alias")  # without effect here
_MALFORMED = (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError)
_MAX_QUOTED = 120


def parse(text: str) -> PtxModule:
    """Parse a PTX text; raise CannotSimulate, never another exception, for what is outside the implemented grammar."""
    with without_collector():
        return _Parser().run(text)


@dataclass
class _Scope:
    """A scope between braces: its first statement, unique names, ranges of registers, labels and jump tables.

    Ranges are stored by the name before the number. Registers of a large range such as `%r<9000000>` are declared on
    first use. `operands` has parsed operands by their text.
    """

    start: int
    names: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    operands: dict[str, Operand] = field(default_factory=dict)

    def bind_jumps(self, function: Function) -> None:
        """Replace the labels of forward jumps by their unique names."""
        body = function.body
        for table in self.tables:
            targets = function.branch_targets[table]
            function.branch_targets[table] = tuple(self.labels.get(target, target) for target in targets)
        for index in range(self.start, len(body)):
            jump = body[index]
            if isinstance(jump, Instruction) and jump.op[0] == "bra" and jump.operands:
                target = jump.operands[0]
                label = self.labels.get(target.name) if isinstance(target, Sym) else None
                if label is not None:
                    body[index] = jump._replace(operands=(Sym(label),))


class _Parser:
    """A parser in one pass; it tracks the current function, scope and source line."""

    def __init__(self) -> None:
        self.module = PtxModule()
        self.function: Function | None = None
        self.scopes: list[_Scope] = []
        self.where: SourceLine | None = None
        self.has_line = False  # True if the current statement has a line of its own
        self.unplaced = Unplaced()
        self.callers: dict[tuple[str, ...], SourceLine] = {}  # by places in the toolkit's headers
        self.serial = 0
        self.number = -1  # of the last instruction or call
        self.pending = ""  # text of the statement that is being read
        self.nested = 0  # braces inside a statement: initialisers and vector operands
        self.room = 0  # registers that may still be declared before their first use: fewer than statements
        self.opcodes: dict[str, tuple[str, ...]] = {}

    def run(self, text: str) -> PtxModule:
        text = without_comments(text)
        files = text.rfind("\n", 0, text.find(".file")) + 1  # the compiler writes them at the end
        self.module.files = {int(number): name for number, name in _FILE.findall(text, files)}
        self.room = text.count(";")
        try:
            for before, mark in pieces(text):
                self.pending = self.pending + before if self.pending else before
                if mark == ";" and not self.nested:
                    if statement := self.pending.strip():
                        self._statement(statement)
                    self.pending = ""
                else:
                    self._mark(mark)
            if self.scopes or self.nested or self.pending.strip():
                raise ValueError(self.pending)
        except _MALFORMED:
            raise CannotSimulate(f"the PTX statement {_quoted(self.pending)}", self.where) from None
        return self.module

    def _mark(self, piece: str) -> None:
        if piece == "{" and (self.nested or not self._opens_scope(self.pending)):
            self.nested += 1
            self.pending += piece
        elif piece == "{":
            self._open(self.pending)
            self.pending = ""
        elif piece == "}" and self.nested:
            self.nested -= 1
            self.pending += piece
            if not self.nested and self.pending.lstrip().startswith(".section"):
                self.pending = ""  # debugging information
        elif piece == "}":
            self._close()
        else:
            self.pending += piece

    def _opens_scope(self, pending: str) -> bool:
        while match := _LABEL.match(pending):
            pending = pending[match.end() :]
        pending = pending.strip()
        return not pending or (self.function is None and "=" not in pending and not pending.startswith(".section"))

    def _open(self, head: str) -> None:
        if self.function is None:
            self.function, self.unplaced = self._declare(head), Unplaced()
        else:
            self._labels(head)
        self.scopes.append(_Scope(len(self.function.body)))

    def _close(self) -> None:
        if self._labels(self.pending):
            raise ValueError(self.pending)
        self.pending = ""
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
            tuple(variable_of(text) for text in split(match["parameters"])),
            tuple(variable_of(text) for text in split(match["results"])),
        )
        self.module.functions[function.name] = function
        return function

    def _statement(self, text: str) -> None:
        if ":" in text and self.function is not None and not (text := self._labels(text)):
            return
        if text[0] == ".":
            self._directive(text)
        elif self.function is not None:
            instruction = self._instruction(text)
            self.function.body.append(instruction)
            if not self.has_line or self.unplaced.needs(instruction):
                self.unplaced.process(self.function.body, self.has_line)
        else:
            raise ValueError(text)

    def _labels(self, text: str) -> str:
        assert self.function is not None
        while match := _LABEL.match(text):
            rest = text[match.end() :]
            if rest.startswith((".branchtargets", ".calltargets", ".callprototype")):
                if rest.startswith(".branchtargets"):
                    table = self._bind(self.scopes[-1], match[1]) if len(self.scopes) > 1 else match[1]
                    self.scopes[-1].tables.append(table)
                    self.function.branch_targets[table] = tuple(map(str.strip, split(rest.split(None, 1)[1])))
                return ""
            label = self._bind(self.scopes[-1], match[1]) if len(self.scopes) > 1 else match[1]
            self.scopes[-1].labels[match[1]] = label
            self.function.body.append(Label(label))
            text = rest
        return text.strip()

    def _directive(self, text: str) -> None:
        match = _DIRECTIVE.match(text)
        name = match[1] if match else ""
        if name == "loc":
            self._location(text)
        elif name == "reg":
            self._registers(text)
        elif self.function is None and re.search(r"\.(func|entry)\b", text):
            self._declare_only(text)
        elif declared := VARIABLE.match(text):
            self._declare_variable(declared, text)
        elif self.function is not None and name not in _HARMLESS:
            raise CannotSimulate(f"the PTX declaration {_quoted(text)}", self.where)

    def _declare_only(self, text: str) -> None:
        match = _FUNCTION.search(text)
        if match is not None and match["name"] not in self.module.functions:
            self._declare(text)

    def _declare_variable(self, match: re.Match[str], text: str) -> None:
        variable = variable_of(text)
        if self.function is None:
            self.module.variables[variable.name] = variable
            return
        name = variable.name
        if len(self.scopes) > 1:
            self.scopes[-1].operands.clear()
            name = self._bind(self.scopes[-1], name)
        self.function.variables[name] = variable._replace(name=name)

    def _location(self, text: str) -> None:
        numbers = text.split(",")[0].split()
        line = int(numbers[2])
        self.has_line = line > 0
        if line:  # line 0 means that the compiler has no line: keep the last real one
            self.where = SourceLine(self.module.files.get(int(numbers[1]), numbers[1]), line)
            inlined = _INLINED.search(text)
            if inlined is not None and _TOOLKIT.search(self.where.file):  # take the line of the call
                number, at = int(inlined[1]), int(inlined[2])
                caller = SourceLine(self.module.files.get(number, inlined[1]), at)
                self.where = self.callers[tuple(numbers[1:4])] = self.callers.get(tuple(inlined.groups()), caller)

    def _registers(self, text: str) -> None:
        match = re.match(r"\.reg\s*(?:\.v[248]\s*)?\.(\w+)\s+(.*)", text, re.S)
        if match is None or not self.scopes:
            raise CannotSimulate(f"the PTX declaration {_quoted(text)}", self.where)
        if len(self.scopes) > 1:
            self.scopes[-1].operands.clear()  # the names may have meant registers of an outer scope
        for name in map(str.strip, split(match[2])):
            if ranged := _RANGE.fullmatch(name):
                self._declare_range(ranged[1], int(ranged[2]), match[1])
            else:
                self._declare_register(self.scopes[-1], name, match[1])

    def _declare_range(self, prefix: str, count: int, kind: str) -> None:
        """Declare a range. The compiler numbers the registers that it uses: those of a kernel are declared at once."""
        scope = self.scopes[-1]
        scope.ranges[prefix] = (count, kind)
        if self.function is not None and len(self.scopes) == 1 and count <= self.room:
            self.room -= count
            names = [f"{prefix}{number}" for number in range(1, count)]
            self.function.registers.update(dict.fromkeys(names, kind))
            scope.operands.update(zip(names, map(Reg, names), strict=True))

    def _declare_register(self, scope: _Scope, name: str, kind: str) -> str:
        """Declare a register and return its unique name: the written one in a function's outermost scope only."""
        assert self.function is not None
        unique = name if scope is self.scopes[0] else self._bind(scope, name)
        self.function.registers[unique] = kind
        return unique

    def _bind(self, scope: _Scope, name: str) -> str:
        self.serial += 1
        scope.names[name] = f"{name}@{self.serial}"
        return scope.names[name]

    def _name(self, name: str) -> str:
        """Return the unique name from the innermost scope that declares the name."""
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
            if scope.ranges and (kind := _kind_in_range(scope.ranges, name)) is not None:
                return self._declare_register(scope, name, kind)
        return name

    def _instruction(self, text: str) -> Instruction | Call:
        guard = None
        self.number += 1
        if text[0] == "@":
            match = _GUARD.match(text)
            if match is None:
                raise ValueError(text)
            guard = (self._predicate(match[2]), match[1] == "!")
            text = text[match.end() :]
        opcode, _, rest = text.partition(" ")
        if not opcode.isprintable():  # inline assembly may have a tab or a line end there
            opcode, rest = (*text.split(None, 1), "")[:2]
        op = self.opcodes.get(opcode)
        if op is None:
            if opcode == "call" or opcode.startswith(("call.", "call(")):
                return self._call(text, guard)
            op = self.opcodes[opcode] = tuple(opcode.replace("::", "__").split("."))
        known = self.scopes[-1].operands
        operands = tuple([known.get(part) for part in rest.strip().split(", ")])  # as the compiler writes them
        if not all(operands):
            operands = tuple([known.get(part) or self._operand(part) for part in parts(rest)])
        return Instruction(op, operands, guard, self.where, self.number)  # type: ignore[arg-type]

    def _predicate(self, name: str) -> Reg:
        register = self._named(name)
        if not isinstance(register, Reg):
            raise CannotSimulate(f"the register or symbol {name}", self.where)
        return register

    def _call(self, text: str, guard: tuple[Reg, bool] | None) -> Call:
        match = _CALL.match(text)
        if match is None:
            raise CannotSimulate(f"the PTX call {text!r}", self.where)
        callee = self._named(match["callee"])
        results, arguments = (
            tuple(self._name(name.strip()) for name in split(match[group])) for group in ("results", "arguments")
        )
        return Call(callee, results, arguments, guard, self.where, self.number)

    def _operand(self, text: str) -> Operand:
        """Parse an operand and cache it by its text for this scope."""
        operand = self.scopes[-1].operands[text] = self._new_operand(text.strip())
        return operand

    def _new_operand(self, text: str) -> Operand:
        first = text[0]
        if first == "%" and "|" not in text and "+" not in text:
            name = self._name(text)
            return Reg(name) if self.function is not None and name in self.function.registers else Sym(name)
        if first == "[" and len(parts := split(text[1:-1])) > 1:  # a texture and its coordinates
            return Vector(tuple(self._operand(part.strip()) for part in parts))
        if first == "[":
            return self._address(text[1:-1])
        if first == "{" and text[-1] == "}":
            return Vector(tuple(self._operand(item.strip()) for item in split(text[1:-1])))
        if first == "!":
            inner = self._operand(text[1:].strip())
            if not isinstance(inner, Reg):
                raise ValueError(text)
            return Not(inner)
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self._operand(left.strip()), self._operand(right.strip()))
        if first.isdigit() or (first in "+-" and len(text) > 1):
            return immediate(text)
        return self._named(text)

    def _named(self, text: str) -> Reg | Sym:
        base, plus, offset = text.partition("+")
        name = self._name(base.strip() if plus else base)
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


def _kind_in_range(ranges: dict[str, tuple[int, str]], name: str) -> str | None:
    """Return the type of a register in one of the ranges, such as `%r7` in `%r<9>`, else None."""
    prefix = name.rstrip(digits)
    while len(prefix) < len(name):
        count, kind = ranges.get(prefix, (0, ""))
        number = name[len(prefix) :]
        if count and int(number) < count and (number[0] != "0" or number == "0"):
            return kind
        prefix += number[0]  # the range's own name ends with a digit
    return None


def _quoted(text: str) -> str:
    """Return a statement for a message, truncated if it is long."""
    text = text.strip()
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}...")
