"""Names of parameters and types of arrays, read from the source: the compiled module does not contain them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_IGNORED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)
_BOUNDS = r"(?:__launch_bounds__\s*\([^;{}]*?\)\s*)?"
_KERNEL = re.compile(rf"\b__global__\b\s*{_BOUNDS}[^;{{}}()]*?{_BOUNDS}\b([A-Za-z_]\w*)\s*\(")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")

_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = r"(?m)(?:^|[;{{}}(])\s*(?!return\b|goto\b|else\b)[A-Za-z_]\w*\s+(?:[\w\s,=.+*/-]*,\s*)?{0}\s*[;,]"

_VECTORS = re.compile(r"\bu?(?P<of>char|short|int|long|longlong|float|double)(?P<count>[1-4])\s+(?P<name>\w+)\s*\[")
_BYTES = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "longlong": 8, "double": 8}

Names = Mapping[str, tuple[str, ...]]


def parameter_names(source: str) -> Names:
    """Return the names of each kernel's parameters; kernels with unusual declarations are left out."""
    text = _IGNORED.sub(" ", source)
    found: dict[str, tuple[str, ...]] = {}
    for match in _KERNEL.finditer(text):
        names = tuple(map(_name, _arguments(text, match.end())))
        if all(names) and found.get(match[1], names) == names:
            found[match[1]] = names
    return found


def vector_arrays(source: str) -> Mapping[str, int]:
    """Return the arrays of vectors, such as `float2 points[64]`, with the bytes of an element."""
    found = _VECTORS.finditer(_IGNORED.sub(" ", source))
    return {match["name"]: int(match["count"]) * _BYTES[match["of"]] for match in found}


def unset_variables(source: str, line: int) -> tuple[str, ...]:
    """Return the variables named in a line, counted from 1, that are declared without a value somewhere."""
    text = _IGNORED.sub(" ", source)
    lines = source.splitlines()
    words = dict.fromkeys(_WORD.findall(lines[line - 1])) if 0 < line <= len(lines) else {}
    return tuple(word for word in words if re.search(_DECLARED.format(re.escape(word)), text))


def _arguments(text: str, start: int) -> Iterator[str]:
    """Yield the text of each parameter in the list that begins at `start`."""
    depth, begin = 0, start
    for at in range(start, len(text)):
        sign = text[at]
        if depth == 0 and sign in ",)":
            if text[begin:at].strip():
                yield text[begin:at]
            begin = at + 1
            if sign == ")":
                return
        depth += (sign in "([{<") - (sign in ")]}>")


def _name(parameter: str) -> str:
    """Return the last word of `const float *in`; empty where a parameter has a type only."""
    words = parameter.partition("=")[0]
    match = _NAME.search(words)
    return match[1] if match and words[: match.start()].strip() else ""
