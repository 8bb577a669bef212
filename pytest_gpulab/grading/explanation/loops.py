"""Values of the loop variables of a kernel, read from its source where they are simple.

A loop such as `for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2)` has the values 128, 64, ..., 1 for
blocks of 256 threads. So has a `while` loop with one such update in its body. Only the condition may depend on the
thread: then the thread that goes round most often counts. Loops with other names or calls are left out.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MAX_ITERATIONS = 64
_FOR = re.compile(r"\bfor\s*\(\s*(?:[\w\s]*\s)?(\w+)\s*=\s*([^;,]+);([^;]+);([^;{}]+?)\)\s*(?=[{\w#\n])")
_WHILE = re.compile(r"\bwhile\s*\(([^(){};]+)\)\s*\{")
_CONSTANT = re.compile(
    r"\b(?:unsigned|int|size_t|const(?:expr)?\s+\w+)\s+(\w+)\s*=\s*([^;]+);"
    r"|^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^/\n]+)",
    re.M,
)
_CHANGES = r"(?:\+\+|--)\s*{0}\b|\b{0}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=)[^;]*)"  # of a variable
_UPDATES = (
    (re.compile(r"^(?:\+\+\s*(\w+)|(\w+)\s*\+\+)$"), "{0} + 1"),
    (re.compile(r"^(?:--\s*(\w+)|(\w+)\s*--)$"), "{0} - 1"),
    (re.compile(r"^(\w+)\s*(/|\*|\+|-|<<|>>)=\s*(.+)$"), "{0} {1} ({2})"),
    (re.compile(r"^(\w+)\s*=\s*(.+)$"), "{1}"),
)
_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Mod: operator.mod, ast.BitAnd: operator.and_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.NotEq: operator.ne,
    ast.Eq: operator.eq, ast.USub: operator.neg,
}  # fmt: skip


_FUNCTIONS: Mapping[str, Callable[[list[int]], int]] = {"min": min, "max": max, "int": max, "unsigned": max}
"""Functions of integers; a conversion has one argument, and returns it."""

Head = tuple[re.Match[str], str, str, str, str]
"""The match of a loop's head, its variable, the first value, the condition, the update."""


@dataclass(frozen=True)
class Loop:
    """A loop with the values of its variable, in order."""

    first: int
    last: int
    name: str
    values: tuple[int, ...]

    @property
    def until_steady(self) -> tuple[int, ...]:
        """The values; of a loop without end those before the one that stays."""
        is_endless = len(self.values) == MAX_ITERATIONS and self.values[-2:-1] == self.values[-1:]
        return self.values[: self.values.index(self.values[-1])] if is_endless else self.values


def loops_of(source: str, known: Mapping[str, int], threads: Sequence[Mapping[str, int]] = ({},)) -> list[Loop]:
    """Return the loops with known values, inner ones after outer ones, by the values of names such as `blockDim.x`.

    `threads` are the values of names such as `threadIdx.x` in the first and the last thread.
    """
    in_threads = [with_constants(source, {**known, **own}) for own in threads]
    known = with_constants(source, known)
    found = []
    fors = ((found, found[1], found[2], found[3].strip(), found[4].strip()) for found in _FOR.finditer(source))
    for match, name, first, condition, update in (*fors, *_whiles(source)):
        try:
            every = (_values(name, first, condition, update, dict(known), own) for own in in_threads)
            values = max(every, key=len)
        except (ValueError, SyntaxError, KeyError, ArithmeticError):
            continue
        begin = source.count("\n", 0, match.start()) + 1
        end = source.count("\n", 0, _end(source, match.end())) + 1
        found.append(Loop(begin, end, name, values))
    return sorted(found, key=lambda loop: loop.first)


def _whiles(source: str) -> Iterator[Head]:
    """Yield the `while` loops with a variable that their body changes once."""
    for match in _WHILE.finditer(source):
        body = source[match.end() : _end(source, match.end() - 1)]
        for name in dict.fromkeys(re.findall(r"[a-zA-Z_]\w*", match[1])):
            first = re.findall(rf"\b{name}\s*=\s*([^;,=]+)[;,]", source[: match.start()])
            updates = re.findall(_CHANGES.format(name), body)
            if first and len(updates) == 1:
                yield match, name, first[-1], match[1], updates[0].strip()


def with_constants(source: str, known: Mapping[str, int]) -> dict[str, int]:
    """Return the known values with those of the constants in the source, and of variables that are set only once."""
    values = dict(known)
    for constant, text, macro, body in _CONSTANT.findall(source):
        is_set_once = bool(macro) or len(re.findall(_CHANGES.format(constant), source)) == 1
        if is_set_once and (value := evaluated(text or body, values)) is not None:
            values.setdefault(constant or macro, value)
    return values


def evaluated(text: str, known: Mapping[str, int]) -> int | None:
    """Return the value of an integer expression of known names; None if it has other parts."""
    with suppress(ValueError, SyntaxError, KeyError, ArithmeticError):
        return _evaluated(text, known)
    return None


def around(loops: list[Loop], line: int) -> Loop | None:
    """Return the innermost loop around a line."""
    return max((loop for loop in loops if loop.first <= line <= loop.last), key=lambda loop: loop.first, default=None)


def _end(source: str, begin: int) -> int:
    """Return the position of the end of a statement or a block."""
    depth = 0
    for at in range(begin, len(source)):
        depth += (source[at] in "{(") - (source[at] in "})")
        if depth == 0 and source[at] in ";}":
            return at
    return len(source) - 1


def _values(
    name: str, first: str, condition: str, update: str, known: dict[str, int], in_thread: Mapping[str, int]
) -> tuple[int, ...]:
    step = _as_expression(update)
    known[name] = _evaluated(first, known)
    values: list[int] = []
    while _evaluated(condition, {**in_thread, name: known[name]}) and len(values) < MAX_ITERATIONS:
        values.append(known[name])
        known[name] = _evaluated(step, known)
    return tuple(values)


def _as_expression(update: str) -> str:
    for pattern, form in _UPDATES:
        if match := pattern.match(update):
            return form.format(*(group for group in match.groups() if group))
    raise ValueError(update)


def _evaluated(text: str, known: Mapping[str, int]) -> int:
    for name in sorted((name for name in known if "." in name), key=len, reverse=True):
        text = text.replace(name, str(known[name]))
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text).replace("/", "//")
    return int(_value(ast.parse(text.strip(), mode="eval").body, known))


def _value(node: ast.expr, known: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        right = _value(node.right, known)
        if isinstance(node.op, ast.LShift) and right > 64:
            raise ValueError("a shift by more bits than an integer has")
        return _OPERATORS[type(node.op)](_value(node.left, known), right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        return _OPERATORS[type(node.ops[0])](_value(node.left, known), _value(node.comparators[0], known))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id]([_value(each, known) for each in node.args])
    raise ValueError(ast.dump(node))
