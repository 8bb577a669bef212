"""Instances of kernel templates that host code names, as in `reduce<256><<<grid, block>>>(...)`.

Without its host code, a file would not instantiate them. A `static_assert` about the address does, without a symbol.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from .declarations import Declaration, Parsed
from .tokens import Token, after_angles, between_commas, closing, tokens

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


class _Template(NamedTuple):
    """A kernel template: its namespaces, the number of its parameters, and where it is first declared."""

    namespaces: tuple[str, ...]
    parameters: int
    start: int


def launched_instances(text: str, parsed: Parsed) -> dict[Declaration, tuple[Instance, ...]]:
    """Return the instances that host code names, by its declarations.

    Instances with arguments that depend on the host code are left out, but for its constants. So are overloads.
    """
    templates = _templates(text, parsed.declarations)
    if not templates:
        return {}
    kept = (each for each in parsed.declarations if each.kind != "host")
    known = frozenset[str]().union(*(each.words if each.what == "macro" else each.names for each in kept))
    found = {}
    for each in parsed.declarations:
        if each.kind != "device" and not each.words.isdisjoint(templates):
            part = [token for token in tokens(text[each.start : each.end]) if token.kind != "directive"]
            found[each] = tuple(_named(part, templates, known | parsed.macros.keys(), each.start))
    return found


def _templates(text: str, declarations: Iterable[Declaration]) -> Mapping[str, _Template]:
    """Return the kernel templates by name."""
    found: dict[str, dict[object, _Template]] = {}
    for each in declarations:
        if each.what == "kernel template" and each.signature is not None:
            head = tokens(text[each.start : each.body])
            parameters = len(list(between_commas(head[2 : after_angles(head, 1) - 1])))
            template = _Template(each.namespaces, parameters, each.start)
            found.setdefault(each.signature.name, {}).setdefault((template[:2], each.signature), template)
    return {name: next(iter(same.values())) for name, same in found.items() if len(same) == 1}


def _named(
    part: Sequence[Token], templates: Mapping[str, _Template], known: Collection[str], offset: int
) -> Iterator[Instance]:
    local = _local_constants(part, known)
    for at, token in enumerate(part[:-1]):
        template = templates.get(token.text)
        if template is None or part[at + 1].text != "<" or offset + token.start < template.start:
            continue
        first, end = _qualified(part, at), after_angles(part, at + 1)
        arguments, outer = part[at + 2 : end - 1], [each.text for each in part[first:at:2]]
        if any(each.text in _NO_ARGUMENT for each in arguments) or end >= len(part) or part[end].text not in _AFTER:
            continue
        resolved = _resolved(arguments, known, local)
        is_its_own = outer == list(template.namespaces[len(template.namespaces) - len(outer) :])
        has_all = len(list(between_commas(arguments))) == template.parameters
        if resolved is not None and is_its_own and has_all:
            name = "::".join((*template.namespaces, f"{token.text}<{resolved}>"))
            yield Instance(name, offset + part[first].start, offset + token.end)


def _qualified(part: Sequence[Token], at: int) -> int:
    """Return the index of the first qualifier of the name at an index."""
    while at > 1 and part[at - 1].text == "::" and part[at - 2].kind == "word":
        at -= 2
    return at


def _resolved(found: Sequence[Token], known: Collection[str], local: Mapping[str, str | None]) -> str | None:
    """Return a text with the values of local constants; None if it has other words of the host code."""
    texts: list[str] = []
    for token in found:
        is_fixed = token.kind != "word" or _BUILT_IN.fullmatch(token.text) is not None
        text = token.text if is_fixed or (token.text in known and token.text not in local) else local.get(token.text)
        if text is None:
            return None
        texts.append(text)
    return " ".join(texts)


def _local_constants(part: Sequence[Token], known: Collection[str]) -> Mapping[str, str | None]:
    """Return the names that a function declares, to their values if they are constants."""
    local: dict[str, str | None] = {}
    for at, (one, two) in enumerate(pairwise(part), 1):
        if two.kind == "word" and (one.kind == "word" or one.text == ">") and one.text not in _NO_DECLARATION:
            value = None if two.text in local else _resolved(_value(part, at), known, local)
            local[two.text] = f"({value})" if value else None
    return local


def _value(part: Sequence[Token], at: int) -> Sequence[Token]:
    """Return the tokens of the value of a constant that is declared at an index; nothing for other declarations."""
    first, end = at, at + 2
    while first > 0 and part[first - 1].text not in (";", "{", "}", "("):
        first -= 1
    before = {token.text for token in part[first:at]}
    is_constant = before & {"const", "constexpr"} and not before & {"*", "&"} and part[first - 1].text != "("
    if not is_constant or part[at + 1 : end] == [] or part[at + 1].text != "=":
        return ()
    while end < len(part) and part[end].text not in (";", ","):
        end = closing(part, end) + 1 if part[end].opens() else end + 1
    return part[at + 2 : end]
