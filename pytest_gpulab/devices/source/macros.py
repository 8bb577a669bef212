"""The macros of a file and its headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .declaration_heads import closing
from .tokens import Token

DEVICE_MARKS = frozenset(("__device__", "__global__", "__constant__", "__shared__", "__managed__", "global", "device"))
ATTRIBUTE_FORM = frozenset(("global", "device"))  # marks only within __attribute__((...))


@dataclass(frozen=True)
class Macro:
    """A macro of the file or of a header.

    Attributes:
        words: the words of its body.
        is_function: whether it has parameters.
        is_complete: whether its body ends with a semicolon or a closing brace, so that a call is a whole declaration.
        pasted: the fixed parts of words that its body pastes together, such as `size_` of `size_##of`.
    """

    words: frozenset[str]
    is_function: bool
    is_complete: bool
    pasted: frozenset[str] = frozenset()


def define(macros: dict[str, Macro], found: Iterable[Token]) -> None:
    """Add the macros that tokens define."""
    for token in found:
        if token.kind == "directive" and token.text == "define" and len(token.within) > 1:
            name, *rest = token.within[1:]
            is_function = bool(rest) and rest[0].text == "(" and rest[0].start == name.end
            body = rest[closing(rest, 0) + 1 :] if is_function else rest
            words = frozenset(part.text for part in body if part.kind == "word")
            pasted = _pasted(body) - {part.text for part in rest[: len(rest) - len(body)]}
            is_complete = bool(body) and body[-1].text in (";", "}")
            before = macros.get(name.text)
            if before is not None:  # defined twice, under conditions: both count
                words, is_complete = words | before.words, is_complete and before.is_complete
                pasted |= before.pasted
            macros[name.text] = Macro(words, is_function, is_complete, pasted)


def _pasted(body: Sequence[Token]) -> frozenset[str]:
    beside = {at + step for at, part in enumerate(body) if part.text == "##" for step in (-1, 1)}
    return frozenset(part.text for at, part in enumerate(body) if at in beside and part.kind == "word")


def marking(macros: Mapping[str, Macro]) -> dict[str, frozenset[str]]:
    """Return the macros that expand to a mark of device code, directly or through other macros."""
    marks = {name: macro.words & DEVICE_MARKS - ATTRIBUTE_FORM for name, macro in macros.items()}
    changed = True
    while changed:
        changed = False
        for name, macro in macros.items():
            through = frozenset[str]().union(*(marks[word] for word in macro.words if word in marks))
            if not through <= marks[name]:
                marks[name], changed = marks[name] | through, True
    return {name: found for name, found in marks.items() if found}
