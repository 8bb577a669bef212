"""Hints for the compiler's first message about the language: a missing sign, a type that does not fit, a scope."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_gpulab.devices.source.tokens import Token, tokens

_ERROR = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): error: (?P<text>[^\n]*\n(?:    +[^\n]*types are:[^\n]*\n)?)"
    r"(?P<code>  [^\n]*)\n(?P<mark> *)\^",
    re.M,
)
_FOR = re.compile(r"\n.*\bfor\s*\([^;()]*,[^;()]*\)")
_EXPLAINED = (
    ("must be a modifiable lvalue", "Left of `=` is something that cannot change: a `const` value, or an expression. A "
     "comparison is `==`."),
    (r"must have a constant value\n.*\[", "The compiler must know the length of an array: a tunable or a `constexpr` "
     "number, not blockDim.x or a parameter."),
    (r"incomplete type [^\n]*\[\]", "An array needs its length here, such as `tile[BLOCK_SIZE]`."),
    ("explicit type is missing", "A function has a type, such as `void`."),
    ("a __global__ function must have a void return type", "A kernel returns nothing: declare it `void`, and write its "
     "results to an array."),
    (r"must have integral or unscoped enum type\n.*\^", "`^` is the exclusive or of bits, not a power: write x * x."),
    ("must have integral or unscoped enum type", "An index and the operands of % and & are integers: declare "
     "the variable as `int` or `unsigned`."),
    ("initializer not allowed for __shared__", "Shared memory has no start values: let the threads write them, then "
     "call __syncthreads()."),
    (r'an automatic "__\w+__" variable declaration', "Declare this variable outside of the kernel, above it."),
    ("must have pointer-to-object type", "Only an array or a pointer has an index: its declaration lacks a `*`, or "
     "there is one index too many. A matrix has one: `y * width + x`."),
    (r'no operator "\[\]" matches[^\n]*\n[^\n]*: (?:const )?\w+[1-4] \[', "The parts of a vector have names instead "
     "of an index: `v.x`, `v.y`."),
    (r'argument of type "(?:const )?(\w+) \*" is incompatible with parameter of type "\1"', "A pointer is given where "
     "one value is needed: choose an element, such as `in[i]`."),
    (r'a value of type "[^"*]*" cannot be (?:assigned|used)[^"]*"[^"]* \*"', "The left side is a pointer: assign to an "
     "element, such as `out[i]`."),
    (r'a value of type "[^"]* \*" cannot be (?:assigned|used)[^"]*"[^"*]*"', "The right side is a pointer: choose an "
     "element, such as `in[i]`."),
    (r'no instance of [^"]*"(?:atomic\w+|__ldg)" matches[^\n]*\n[^\n]*: \([^*,)]*[,)]', "The first argument is an "
     "address, not a value: `&bins[k]` in place of `bins[k]`."),
    (r'no instance of [^"]*"__shfl\w*" matches[^\n]*\n[^\n]*: \((?:[^,)]*,)?[^,)]*\)', "The arguments are the mask of "
     "the lanes, the value, and the distance or the lane."),
    (_FOR, "The three parts of `for (...; ...; ...)` are separated by semicolons."),
    (r'expected a "\("\n.*\b(?:if|while|switch|for)\b', "The condition behind `if`, `while` or `switch` is in "
     "parentheses."),
    (r"\n.*\b(?:int|unsigned|float|double|GPULAB_T)\s*\[\w*\]\s*\w", "The brackets of an array are behind its name, as "
     "in `float values[4]`."),
)  # fmt: skip
"""A pattern in the compiler's first message with its source line, and the hint for it."""
_OF_OTHER_LANGUAGES = {
    "elif": "`else if`", "elseif": "`else if`", "then": "nothing in its place", "let": "a type such as `int`",
    "var": "a type such as `int`", "def": "a type such as `void`", "True": "`true`", "False": "`false`",
    "None": "`nullptr`", "endif": "a closing brace", "pass": "`;`",
}  # fmt: skip
_TYPE = re.compile(r"u?(?:int|char|short|long|float|double)[1-4]?|unsigned|bool|auto|T|GPULAB_T|\w+_t")
_MARKS = ("__global__", "__device__", "__shared__", "__constant__")
_STATEMENTS = frozenset(("if", "else", "for", "while", "return", "do", "switch", "__syncthreads", "}"))
_OF_SIGNS = ("expected", "this declaration has no storage class", "type name is not allowed")
_ENDS = frozenset((";", "{", "}", ":"))
_OUTSIDE = "This line is outside of any function: an earlier `}` closes the function too soon."
_BEHIND_NAMES = frozenset(("[", "=", "+=", "(", "+", "-", "*", "."))


class _Place(NamedTuple):
    """The compiler's first message with its source line, and the index of the token at its mark."""

    text: str
    line: int
    at: int


def language_hint(diagnostics: str, source: str, filename: str) -> str | None:
    """Return a hint for the compiler's first message if it is a usual one about the language."""
    first = _ERROR.search(diagnostics)
    if first is None or first["file"] != filename:
        return None
    found, lines, line = tokens(source), source.splitlines(keepends=True), int(first["line"])
    start = sum(map(len, lines[: line - 1])) + len(first["mark"]) - len("  ")
    at = next((at for at, token in enumerate(found) if token.end > start), len(found))
    place = _Place(f"{first['text']}{first['code']}", line, at)
    return (
        _of_sign(place, found, source)
        or _of_name(place, found, source)
        or next((hint for words, hint in _EXPLAINED if re.search(words, place.text)), None)
    )


def _of_sign(place: _Place, found: Sequence[Token], source: str) -> str | None:
    """Return a hint for a missing semicolon, one that is too much, or a brace that closes a function too early."""
    if place.at in (0, len(found)) or not place.text.startswith(_OF_SIGNS):
        return None
    before, token = found[place.at - 1], found[place.at]
    words = set(re.findall(r"\w+", place.text.partition("\n")[2]))
    for line, name, sign in _macros_with_signs(found, source):
        if name in words:
            return f"`{name}` stands for all of its text, the `{sign}` included: delete that in line {line}."
    is_first = _line(source, before.end - 1) < place.line
    is_after = place.text.startswith(('expected a ";"', "type name"))
    if is_after and is_first and before.kind != "directive" and before.text not in _ENDS:
        return f"A `;` is missing at the end of line {_line(source, before.end - 1)}."
    if place.text.startswith('expected a ")"') and _TYPE.fullmatch(token.text):
        return f"A comma is missing before `{token.text}`."
    if place.text.startswith('expected a ";"') and not _FOR.search(place.text):
        return f"A `;` or another sign is missing before `{token.text}`."
    if not place.text.startswith(("expected a declaration", "this declaration")):
        return None
    if (before.text, token.text) == (";", "{"):
        return "The `;` behind the list of parameters ends the declaration: delete it."
    behind = found[place.at + 1].text if place.at + 1 < len(found) else ""
    return _OUTSIDE if token.text in _STATEMENTS or behind in _BEHIND_NAMES else None


def _macros_with_signs(found: Sequence[Token], source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the sign of macros such as `#define N 8;` and `#define N = 8`."""
    for token in found:
        if token.kind == "directive" and token.text == "define" and len(token.within) > 2:
            _, name, *body = token.within
            if body[-1].text == ";" or body[0].text == "=":
                yield _line(source, token.start), name.text, ";" if body[-1].text == ";" else "="


def _of_name(place: _Place, found: Sequence[Token], source: str) -> str | None:
    """Return a hint for a misspelt mark, a word of another language, or a name that is declared elsewhere."""
    if place.text.startswith("this declaration has no storage") and place.at < len(found):
        from difflib import get_close_matches

        near = get_close_matches(found[place.at].text, _MARKS, 1)
        return f"Is `{near[0]}` meant?" if near else None
    undefined = re.match(r'identifier "(\w+)" is undefined\n', place.text)
    if undefined is None:
        return None
    name = undefined[1]
    if instead := _OF_OTHER_LANGUAGES.get(name):
        return f"C++ has no `{name}`: write {instead}."
    declared = [at for at, token in enumerate(found) if token.text == name and _is_declared(found, at)]
    earlier = [at for at in declared if at < place.at]
    if not declared:
        return None
    line = _line(source, found[(earlier or declared)[-1 if earlier else 0]].start)
    if not earlier:
        return f"`{name}` is declared later, in line {line}: declare it before it is used."
    if not _depth(found[: place.at]):
        return _OUTSIDE
    if _leaves_function(found, earlier[-1], place.at):
        return f"`{name}` of line {line} belongs to another function: pass its value as a parameter."
    return f"`{name}` of line {line} exists only in its loop or block: declare it before that."


def _is_declared(found: Sequence[Token], at: int) -> bool:
    """Return True for a name behind a type, with a sign that ends or continues a declaration."""
    if at == 0 or at + 1 == len(found) or found[at + 1].text not in ("=", ";", ",", "[", ")", ":", "{"):
        return False
    before = found[at - 2] if found[at - 1].text in ("*", "&") and at > 1 else found[at - 1]
    return _TYPE.fullmatch(before.text) is not None


def _leaves_function(found: Sequence[Token], begin: int, end: int) -> bool:
    """Return True if all braces that are open at one token are closed before another one."""
    ends = (at for at in range(begin, end) if found[at].text == "}")
    return any(_depth(found[: at + 1]) == 0 for at in ends)


def _depth(found: Sequence[Token]) -> int:
    """Return how many braces are open after the tokens."""
    return sum({"{": 1, "}": -1}.get(token.text, 0) for token in found)


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1
