"""Names of kernels and variables as the student wrote them, from the symbols that the compiler made of them."""

from __future__ import annotations

import re

# What nvcc and NVRTC call the anonymous namespace; the student has no name for it.
_ANONYMOUS = ("_GLOBAL__N_", "_INTERNAL_")
_SOURCE_NAME = re.compile(r"\d+")
_LOCAL_NAME = re.compile(r".*E(\d+)(\D\w*)$")


def unmangle(symbol: str) -> str:
    """Return the name in the source: `_Z6reducePKiPij` gives `reduce`, `_Z4scanILi256EEvPf` gives `scan`.

    Only the name is wanted, so parameter types and template arguments are dropped; namespaces are joined with `::`.
    A symbol that is not mangled (`extern "C"`, plain variables), or that is no plain name (an operator), is returned
    as it is.

    The grammar is that of the Itanium C++ ABI, section 5.1 "External Names (a.k.a. Mangling)".
    """
    if not symbol.startswith("_Z"):
        return symbol
    rest = symbol[2:]
    nested = rest.startswith("N")
    rest = rest[1:] if nested else rest
    names: list[str] = []
    while (parsed := _take_name(rest)) and (nested or not names):
        name, rest = parsed
        names.append(name)
    if not names or (nested and rest[:1] not in ("E", "I")):
        return symbol
    return "::".join(name for name in names if not name.startswith(_ANONYMOUS)) or symbol


def unmangle_local(symbol: str) -> str:
    """Return the name of a variable that may be local to a function: `_ZZ6reducePKiPijE4tile` gives `tile`.

    Empty for the compiler's own names, such as that of the memory that holds all of a thread's arrays.
    """
    symbol = symbol.partition("~")[0]
    if symbol.startswith("_ZZ"):
        found = _LOCAL_NAME.search(symbol)
        return found[2][: int(found[1])] if found and len(found[2]) >= int(found[1]) else ""
    return "" if symbol.startswith("__local_depot") or "$" in symbol else unmangle(symbol)


def _take_name(text: str) -> tuple[str, str] | None:
    """Split `6reducePKi` into `reduce` and `PKi`; an `L` in front (internal linkage) is skipped."""
    text = text.removeprefix("L")
    length = _SOURCE_NAME.match(text)
    if length is None:
        return None
    start, end = length.end(), length.end() + int(length.group())
    return (text[start:end], text[end:]) if end <= len(text) else None
