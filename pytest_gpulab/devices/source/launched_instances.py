"""Instances of kernel templates that host code names, as in `reduce<256><<<grid, block>>>(...)`.

Without its host code, a file would not instantiate them. A `static_assert` about the address does, without a symbol.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from .declaration_heads import after_angles
from .declarations import Declaration, Parsed
from .tokens import Token, tokens

_BUILT_IN = re.compile(
    r"u?(?:char|short|int|long|longlong|float|double)[1-4]|char|short|int|long|float|double|bool|signed|unsigned|const"
    r"|true|false|sizeof"
)
_NO_ARGUMENT = frozenset("&|;{}")  # of a comparison, not of template arguments
_AFTER = ("<<<", "(", ")", ",", ";")
_NO_DECLARATION = ("return", "case", "else", "new", "typename")


class Instance(NamedTuple):
    """An instance such as `reduce<256>`, and the place in the file where host code names it."""

    name: str
    start: int
    end: int

    def instantiation(self) -> str:
        """Return a declaration that instantiates it."""
        return f'static_assert(&{self.name} != nullptr, "");'


def launched_instances(text: str, parsed: Parsed) -> dict[Declaration, tuple[Instance, ...]]:
    """Return the instances that host code names, by its declarations.

    Instances with arguments that depend on the host code are left out, and overloaded templates.
    """
    parameters = _template_parameters(text, parsed.declarations)
    if not parameters:
        return {}
    known = frozenset[str]().union(*(each.names for each in parsed.declarations if each.kind != "host"), parsed.macros)
    found = {}
    for each in parsed.declarations:
        if each.kind != "device" and not each.words.isdisjoint(parameters):
            part = [token for token in tokens(text[each.start : each.end]) if token.kind != "directive"]
            found[each] = tuple(_named(part, parameters, known, each.start))
    return found


def _template_parameters(text: str, declarations: Iterable[Declaration]) -> Mapping[str, int]:
    """Return the number of template parameters by kernel template."""
    numbers: dict[str, set[object]] = {}
    for each in declarations:
        if each.what == "kernel template" and each.signature is not None:
            head = tokens(text[each.start : each.body])
            listed = head[2 : after_angles(head, 1) - 1]
            numbers.setdefault(each.signature.name, set()).add((len(list(_split(listed))), each.signature))
    return {name: next(iter(found))[0] for name, found in numbers.items() if len(found) == 1}  # type: ignore[index]


def _named(
    part: Sequence[Token], parameters: Mapping[str, int], known: Collection[str], offset: int
) -> Iterator[Instance]:
    local = {two.text for one, two in pairwise(part) if _declares(one, two)}
    for at, token in enumerate(part[:-1]):
        if token.text in parameters and part[at + 1].text == "<" and (at == 0 or part[at - 1].text != "::"):
            end = after_angles(part, at + 1)
            arguments = part[at + 2 : end - 1]
            if any(each.text in _NO_ARGUMENT for each in arguments) or end >= len(part) or part[end].text not in _AFTER:
                continue
            words = {argument.text for argument in arguments if argument.kind == "word"}
            is_known = all(_BUILT_IN.fullmatch(word) or (word in known and word not in local) for word in words)
            if is_known and len(list(_split(arguments))) == parameters[token.text]:
                name = f"{token.text}<{' '.join(argument.text for argument in arguments)}>"
                yield Instance(name, offset + token.start, offset + token.end)


def _declares(one: Token, two: Token) -> bool:
    return two.kind == "word" and (one.kind == "word" or one.text == ">") and one.text not in _NO_DECLARATION


def _split(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the parts between commas outside brackets."""
    begin = at = 0
    while at < len(found):
        if found[at].text == ",":
            yield found[begin:at]
            begin = at + 1
        at = after_angles(found, at) if found[at].text == "<" else at + 1
    if found[begin:]:
        yield found[begin:]
