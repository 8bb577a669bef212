"""Constants without `__device__` or `__constant__`: nvcc refuses kernels that need their address, NVRTC does not.

An array needs its address, a number only if a reference is bound to it, as by `std::max`; otherwise its value is used.
There is one difference: NVRTC accepts a local reference (`const int &r = n;`), which nvcc refuses.
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
    """Return the constants to which a reference may be bound: those that are a whole argument.

    Args:
        found: the file's tokens.
        constants: names of constants at namespace scope.
        classes: names of classes; their static members count as well.
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
    """Refuse device code that needs the address of one of these constants, with nvcc's message.

    Args:
        ptx: PTX compiled without optimisation: with it, constant indices would leave no trace of an array.
        filename: the file's name in messages.
        constants: their names.

    Raises:
        CompileError: the address of a constant is needed.
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
