"""A C++ tokenizer: words, literals, punctuation and preprocessor directives, with their positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    """A token of the text, from `start` to before `end`.

    Attributes:
        text: its text, with digraphs replaced.
        within: the tokens of a directive, without its `#`.
    """

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
