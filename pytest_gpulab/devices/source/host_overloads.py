"""Host functions and variables with the name of device code: names must mean the same as for nvcc.

If they were removed, a call for which nvcc chooses the host function, and therefore refuses it, would silently become a
call of the device function. The same holds for a variable of an inner namespace.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from .declarations import Declaration
from .tokens import Head, Token, after_angles, signature_of, tokens

_KNOWN_TYPE = re.compile(
    r"u?(?:char|short|int|long|longlong|float|double)[1-4]|(?:u|u_)?(?:char|short|int|long)|u?int(?:8|16|32|64)_t"
    r"|s?size_t|float|double|bool|void|signed|unsigned|const|volatile|inline|static|extern|auto|noexcept|dim3|operator"
    r"|template|typename|class|struct|enum|__inline__|__restrict__"
)


def host_overloads(text: str, dropped: Iterable[Declaration], kept: Collection[Declaration]) -> Iterator[Declaration]:
    """Yield the dropped host functions that a call in the kept code may choose, if all types in them are known."""
    declared = {each.signature.name for each in kept if each.signature is not None}
    words = frozenset[str]().union(*(each.words for each in kept))
    for each in dropped:
        if each.what == "function" and each.signature is not None and each.signature.name in declared:
            head = tokens(text[each.start : each.body])
            if _is_plain(head) and _words_of_types(head) <= words | _known(head):
                yield each


def hidden_variables(
    dropped: Iterable[Declaration], kept: Collection[Declaration]
) -> Iterator[tuple[Declaration, str]]:
    """Yield the host variables that hide device code, each with a type of its name, which no expression can use."""
    declared = frozenset[str]().union(*(each.names for each in kept if each.what != "class"))
    words = frozenset[str]().union(*(each.words for each in kept))
    for each in dropped:
        if each.what == "declaration" and each.signature is None and each.names & declared & words:
            yield each, each.unusable


def _is_plain(head: Sequence[Token]) -> bool:
    """Return whether it is neither a member of a class or namespace nor a specialisation."""
    found = Head(head, 0)
    if found.parameters is None or any(token.text in ("::", "friend") for token in head[: found.parameters]):
        return False
    is_template = head[0].text == "template"
    return not is_template or (head[1].text == "<" and head[2].text != ">" and head[found.parameters - 1].text != ">")


def _words_of_types(head: Sequence[Token]) -> frozenset[str]:
    """Return the words of the returned type and of the parameters' types."""
    found = Head(head, 0)
    signature = signature_of(head, found)
    assert signature is not None and found.parameters is not None
    types = {word for parameter in signature.parameters for word in parameter}
    before = {token.text for token in found.top if token.end <= head[found.parameters].start}
    return frozenset(word for word in types | before - {signature.name} if word.isidentifier())


def _known(head: Sequence[Token]) -> frozenset[str]:
    """Return the words that need no declaration: built-in types, and a template's parameters."""
    of_template = head[: after_angles(head, 1)] if head[0].text == "template" else ()
    return frozenset(
        token.text for token in head if token in of_template or _KNOWN_TYPE.fullmatch(token.text) is not None
    )
