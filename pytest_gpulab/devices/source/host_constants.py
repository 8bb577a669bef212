"""Constants without `__device__` or `__constant__`: nvcc refuses kernels that need their address, NVRTC does not.

An array is read by its address, a number where a reference is bound to it, as by `std::max`; else its value is known.
NVRTC reads the value of a local reference as well (`const int &r = n;`): that alone only nvcc refuses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pytest_gpulab.devices.errors import CompileError

from .names import unmangle
from .tokens import Token

_BEFORE, _BEHIND = ("(", ",", "{"), (")", ",", "}")
_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_ADDRESS = re.compile(r"\s*(?:mov|cvta)\S*\s+%\w+, ([\w$]+)(?:\+\d+)?;")


def bound_to_references(found: Sequence[Token], constants: Collection[str], classes: Collection[str]) -> frozenset[str]:
    """Return the constants that stand where a reference may be bound to them: as a whole argument.

    Args:
        found: the file's tokens.
        constants: names at namespace scope.
        classes: those of classes, whose static members count as well.
    """
    names = set()
    for at, token in enumerate(found[:-1]):
        if token.kind == "word" and found[at + 1].text in _BEHIND:
            first = at
            while first > 1 and found[first - 1].text == "::":
                first -= 2
            is_known = token.text in constants or (first < at and found[first].text in classes)
            if is_known and first > 0 and found[first - 1].text in _BEFORE:
                names.add(token.text)
    return frozenset(names)


def check_host_constants(ptx: str, filename: str, constants: Collection[str]) -> None:
    """Refuse device code that needs the address of one of these constants, as nvcc does and in its words.

    Args:
        ptx: compiled without optimisation: else constant indices would leave no trace of an array.
        filename: what messages call the file.
        constants: their names.

    Raises:
        CompileError: an address is needed.
    """
    line, found = "1", dict[tuple[str, str], None]()
    for text in ptx.splitlines():
        if place := _PLACE.match(text):
            line = place[1]
        elif (address := _ADDRESS.match(text)) and (name := unmangle(address[1]).rpartition("::")[2]) in constants:
            found[line, name] = None
    if found:
        messages = (
            f'{filename}({line}): error: identifier "{name}" is undefined in device code' for line, name in found
        )
        raise CompileError("\n\n".join(messages))
