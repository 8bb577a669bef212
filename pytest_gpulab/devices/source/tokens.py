"""A C++ tokenizer: words, literals, punctuation and directives with their positions, and the defined macros."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["word", "number", "string", "character", "sign", "directive"]
_OPENING = {"(": ")", "[": "]", "{": "}"}

# No alternative can match in two ways, so that a hostile text cannot cause backtracking.
_TOKEN = re.compile(
    r"""
      (?P<blank>(?:[ \t\f\v\n\r]|\\[ \t\f\v\r]*\n)+)
    | (?P<comment>//(?:\\[ \t\r]*\n|[^\n])*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\()
    | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"?)
    | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?)
    | (?P<word>[^\W\d]\w*|\$\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    | (?P<sign><<<|>>>|::|->|\#\#|%:|<%|%>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIGRAPHS = {"<%": "{", "%>": "}", "%:": "#"}


@dataclass(frozen=True)
class Token:
    """A token of the text, from `start` to before `end`; `within` are the tokens of a directive, without its `#`."""

    kind: Kind
    text: str
    start: int
    end: int
    within: tuple[Token, ...] = ()

    def opens(self) -> str:
        """Return the matching closing bracket of an opening bracket; empty for other tokens."""
        return _OPENING.get(self.text, "") if self.kind == "sign" else ""


def tokens(text: str) -> list[Token]:
    """Return the tokens of any text, without comments and blanks."""
    found: list[Token] = []
    stream = _lexed(text)
    line_begins = True
    held: list[Token] = []
    directive: Token | None = None
    for token in stream:
        if token is None:  # the end of a line that does not continue
            if directive is not None:
                found.append(_directive(directive, held))
                directive, held = None, []
            line_begins = True
            continue
        if directive is not None:
            held.append(token)
        elif line_begins and token.text == "#":
            directive = token
        else:
            found.append(token)
        line_begins = False
    if directive is not None:
        found.append(_directive(directive, held))
    return found


@lru_cache(maxsize=16)
def words_of(text: str) -> frozenset[str]:
    """Return the words of a text without comments and strings."""
    found = (piece for token in tokens(text) for piece in (token.within or (token,)))
    return frozenset(piece.text for piece in found if piece.kind == "word")


def in_ascii(text: str) -> str:
    """Return a text with escapes in place of the letters in names that NVRTC does not read, but nvcc does."""
    if text.isascii():
        return text
    parts, end = [], 0
    for piece in (piece for token in tokens(text) for piece in (token.within or (token,))):
        if piece.kind == "word" and not piece.text.isascii():
            name = "".join(sign if sign.isascii() else f"\\U{ord(sign):08x}" for sign in piece.text)
            parts += [text[end : piece.start], name]
            end = piece.end
    return "".join((*parts, text[end:]))


def _directive(sign: Token, held: list[Token]) -> Token:
    name = held[0].text if held else ""
    return Token("directive", name, sign.start, held[-1].end if held else sign.end, tuple(held))


def _lexed(text: str) -> Iterator[Token | None]:
    """Yield the tokens, and None for each end of a line that does not continue on the next one."""
    at, length = 0, len(text)
    while at < length:
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        kind, start, at = match.lastgroup, at, match.end()
        if kind == "blank":
            if _ends_line(match.group()):
                yield None
        elif kind == "raw":
            at = _end_of_raw(text, at, match["mark"])
            yield Token("string", text[start:at], start, at)
        elif kind == "sign":
            yield Token("sign", _DIGRAPHS.get(match.group(), match.group()), start, at)
        elif kind != "comment":
            yield Token(kind, match.group(), start, at)  # type: ignore[arg-type]


def _ends_line(blank: str) -> bool:
    return any("\\" not in line for line in blank.split("\n")[:-1])


def _end_of_raw(text: str, at: int, mark: str) -> int:
    closing = f'){mark}"'
    end = text.find(closing, at)
    return len(text) if end < 0 else end + len(closing)


def closing(found: Sequence[Token], at: int) -> int:
    """Return the index of the bracket that closes the one at `at`; the last index if none does."""
    open_brackets: list[str] = []
    for index in range(at, len(found)):
        if bracket := found[index].opens():
            open_brackets.append(bracket)
        elif found[index].kind == "sign" and open_brackets and found[index].text == open_brackets[-1]:
            open_brackets.pop()
            if not open_brackets:
                return index
    return len(found) - 1


DEVICE_MARKS = frozenset(("__device__", "__global__", "__constant__", "__shared__", "__managed__", "global", "device"))
ATTRIBUTE_FORM = frozenset(("global", "device"))  # marks only within __attribute__((...))


@dataclass(frozen=True)
class Macro:
    """A macro of the file or of a header."""

    words: frozenset[str]  # the words of its body
    is_function: bool  # whether it has parameters
    # whether its body ends with a semicolon or a closing brace, so that a call is a whole declaration
    is_complete: bool
    # the fixed parts of words that its body pastes together, such as `size_` of `size_##of`
    pasted: frozenset[str] = frozenset()
    brace: str = ""  # its body if that is a brace, as in `#define BEGIN {`; else empty


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
            brace = body[0].text if len(body) == 1 and body[0].text in ("{", "}") and not is_function else ""
            macros[name.text] = Macro(words, is_function, is_complete, pasted, brace)


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
