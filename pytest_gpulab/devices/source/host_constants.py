"""Constants without `__device__` or `__constant__`: nvcc refuses kernels that need their address, NVRTC does not.

An array needs its address, a number only if a reference is bound to it, as by `std::max`; otherwise its value is used.
NVRTC's output tells, but for a local reference (`const int &r = n;`), which the text tells.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from pytest_gpulab.devices.errors import CompileError

from .declarations import Declaration
from .names import unmangle
from .tokens import Token, tokens

_BEFORE, _BEHIND = ("(", ",", "{"), (")", ",", "}")
_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_WITH_MASK = re.compile(r"__(?:shfl|syncwarp|any|all|ballot|match|reduce)")  # takes the mask of lanes by value
_ADDRESS = re.compile(r"\s*(?:mov|cvta)\S*\s+%\w+, ([\w$]+)(?:\+\d+)?;")


def bound_to_references(found: Sequence[Token], constants: Collection[str], classes: Collection[str]) -> frozenset[str]:
    """Return the constants to which a reference may be bound, or a pointer: a whole argument, a default one, or `&m`.

    These are constants at namespace scope, and static members of the classes.
    """
    places = _places(found, constants, classes, (*_BEHIND, ";"))
    others = [(found[first - 1].text, at) for first, at in places if not _WITH_MASK.match(found[first - 2].text)]
    return frozenset(
        found[at].text
        for before, at in others
        if before == "&"
        or (before, found[at + 1].text) == ("=", ")")
        or (before in _BEFORE and found[at + 1].text != ";")
    )


def local_references(
    found: Sequence[Token], constants: Collection[str], classes: Collection[str]
) -> Iterator[tuple[str, int]]:
    """Yield the constants to which `const int &r = n;` binds a reference, with offsets; see `bound_to_references`."""
    for first, at in _places(found, constants, classes, (";", ",")):
        if first > 2 and found[first - 1].text == "=" and found[first - 3].text == "&":
            yield found[at].text, found[at].start


def _places(
    found: Sequence[Token], constants: Collection[str], classes: Collection[str], behind: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Yield the positions of the first and the last token of each constant that is followed by one of some tokens."""
    for at, token in enumerate(found[:-1]):
        if token.kind == "word" and found[at + 1].text in behind:
            first = at
            while first > 1 and found[first - 1].text == "::":
                first -= 2
            is_known = token.text in constants or (first < at and found[first].text in classes)
            if is_known and first > 0:
                yield first, at


def constant_expressions(text: str, constants: Collection[Declaration]) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that make floating-point constants, and those that depend on them, constant expressions.

    As in `const double PI = 3.14; const double RAD = PI / 180;`. nvcc computes such a value, NVRTC does not.
    """
    floating = [each for each in constants if {"float", "double"} & each.top]
    pairs = ((one, other) for one in floating for other in constants if other is not one or "," in one.top)
    needed = {one for one, other in pairs if not one.names.isdisjoint(other.words)}
    names = frozenset[str]().union(*(each.names for each in needed))
    for each in constants:
        if "constexpr" not in each.top and (each in needed or not each.words.isdisjoint(names)):
            mark = next((token for token in tokens(text[each.start : each.end]) if token.text == "const"), None)
            if mark is not None:
                yield each.start + mark.start, each.start + mark.end, "constexpr"


def check_host_constants(ptx: str, filename: str, constants: Collection[str]) -> None:
    """Refuse device code that needs the address of one of these constants, with nvcc's message, by a CompileError.

    The PTX must be compiled without optimisation: with it, constant indices would leave no trace of an array.
    """
    line, found = "1", dict[tuple[str, str], None]()
    for text in ptx.splitlines():
        if place := _PLACE.match(text):
            line = place[1]
        elif (address := _ADDRESS.match(text)) and (name := unmangle(address[1]).rpartition("::")[2]) in constants:
            found[line, name] = None
    if found:
        raise undefined_in_device_code(filename, found)


def undefined_in_device_code(filename: str, places: Iterable[tuple[str | int, str]]) -> CompileError:
    """Return nvcc's error for host constants, from their lines and names."""
    messages = (f'{filename}({line}): error: identifier "{name}" is undefined in device code' for line, name in places)
    return CompileError("\n\n".join(messages))
