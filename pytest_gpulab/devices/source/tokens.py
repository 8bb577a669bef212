"""A C++ tokenizer: words, literals, punctuation and directives with their positions; macros; heads of declarations.

The head of a declaration has the positions of its parameters, initial value, body and end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

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


class Token(NamedTuple):
    """A token of the text, from `start` to before `end`; `within` are the tokens of a directive, without its `#`."""

    kind: Kind
    text: str
    start: int
    end: int
    within: tuple[Token, ...] = ()

    def opens(self) -> str:
        """Return the matching closing bracket of an opening bracket; empty for other tokens."""
        return _OPENING.get(self.text, "") if self.kind == "sign" else ""


@lru_cache(maxsize=4)  # a file and the header for kernels, which several steps of a compilation read
def tokens(text: str) -> tuple[Token, ...]:
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
    return tuple(found)


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


class Macro(NamedTuple):
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


CLASSES = frozenset(("class", "struct", "union"))
# A group in parentheses after these is no parameter list.
_WITH_ARGUMENTS = frozenset(
    ("alignas", "__align__", "__attribute__", "__declspec", "decltype", "__launch_bounds__", "noexcept", "throw",
     "requires", "explicit", "typeof", "__typeof__", "__cluster_dims__", "__block_size__", "__maxnreg__",
     "__builtin_align__", "_Alignas", "asm", "__asm__")
)  # fmt: skip
_TYPE_ENDS = frozenset(
    ("const", "volatile", "unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool", "void")
)
_SIGNS = frozenset("=!<>+-*/%&|^~,")
_NAME_ENDS = _SIGNS | {")", "]", "->", "<<<", ">>>"}


def after_angles(found: Sequence[Token], at: int) -> int:
    """Return the index after the `<...>` that opens at `at`."""
    depth = 0
    while at < len(found):
        token = found[at]
        if token.opens():
            at = closing(found, at)
        elif token.kind == "sign" and set(token.text) == {"<"}:
            depth += len(token.text)
        elif token.kind == "sign" and set(token.text) == {">"}:
            depth -= len(token.text)
            if depth <= 0:
                return at + 1
        at += 1
    return at


class Signature(NamedTuple):
    """The name of a function, `operator` for all operators, and its parameters without their names and defaults."""

    name: str
    parameters: tuple[tuple[str, ...], ...]


class Head:
    """A declaration's tokens up to its body, initial value or semicolon. Positions are token indices."""

    def __init__(self, found: Sequence[Token], at: int) -> None:
        self._found, self.start = found, at
        self.parameters: int | None = None  # the opening bracket of the parameter list; None without one
        self.body: int | None = None  # the beginning of a function's body or initialiser list; None without a body
        self.classes: int | None = None  # the opening bracket of the body of a class or enumeration; None without one
        self.pointer = ""  # the name of a pointer or reference to an array or a function; empty for other declarations
        self.top: list[Token] = []  # the tokens outside brackets, with the opening brackets
        self._key = ""
        self._initialisers: int | None = None
        self._has_value = False
        self.end = self._read(at)  # the index after the declaration

    def _read(self, at: int) -> int:
        found = self._found
        while at < len(found):
            token = found[at]
            # The end of the declaration or of the enclosing block.
            if token.kind == "sign" and token.text in (";", "}"):
                return at + (token.text == ";")
            if token.text == "template" and found[at + 1 : at + 2] and found[at + 1].text == "<":
                at = after_angles(found, at + 1)
                continue
            if token.opens():
                last = closing(found, at)
                if token.text == "{" and self._is_body(at):
                    return last + 1
                self._step_over(at)
                at = last
            else:
                self._take(at)
            self.top.append(token)
            at += 1
        return at

    def _before(self, at: int) -> Token | None:
        return self._found[at - 1] if at > self.start else None

    def _is_body(self, at: int) -> bool:
        if self.parameters is None or self._has_value:
            return False
        before = self._before(at)
        if self._initialisers is not None and before is not None and (before.kind == "word" or before.text == ">"):
            return False  # a member's initialiser
        self.body = at if self._initialisers is None else self._initialisers
        return True

    def _step_over(self, at: int) -> None:
        before = self._before(at)
        if self._found[at].text == "{":
            if self._key and not self._has_value and self.classes is None:
                self.classes = at
            elif before is not None and before.kind == "word" and self._initialisers is None:
                self._has_value = True
        elif self._found[at].text == "(" and self.parameters is None and not self._has_value and before is not None:
            self.pointer = self.pointer or _pointer(self._found[at + 1 : closing(self._found, at) + 2])
            if self.pointer:
                return
            is_named = before.kind == "word" and before.text not in _WITH_ARGUMENTS
            if is_named or before.text in _NAME_ENDS:
                self.parameters = at

    def _take(self, at: int) -> None:
        text, before = self._found[at].text, self._before(at)
        if text == "=":
            is_operators = before is not None and (before.text == "operator" or before.text in _SIGNS)
            self._has_value = self._has_value or not is_operators
        elif text == ":" and self.parameters is not None and self._initialisers is None:
            self._initialisers = at
        elif (text in CLASSES or text == "enum") and not self._key and self.parameters is None:
            self._key = text


def _pointer(found: Sequence[Token]) -> str:
    """Return the name in `(*name)(` or `(&name)[`, from the tokens behind its first bracket; empty for other tokens."""
    texts = [token.text for token in found]
    is_pointer = texts[:1] in (["*"], ["&"]) and texts[-2:-1] == [")"] and texts[-1] in ("(", "[")
    inner = texts[1:-2]
    return inner[-1] if is_pointer and inner and all(token.kind == "word" for token in found[1:-2]) else ""


def signature_of(found: Sequence[Token], head: Head) -> Signature | None:
    """Return the signature of a function; None for other declarations."""
    if head.parameters is None:
        return None
    parameters = (_type(parameter) for parameter in parameters_of(found, head.parameters))
    return Signature(_function_name(found, head), tuple(part for part in parameters if part not in ((), ("void",))))


def parameters_of(found: Sequence[Token], at: int) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each parameter in the list that opens at `at`."""
    return between_commas(found[at + 1 : closing(found, at)])


def between_commas(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the parts between commas outside brackets."""
    at = begin = 0
    while at < len(found):
        if found[at].text == ",":
            yield found[begin:at]
            begin = at + 1
        at = _after_group(found, at)
    if found[begin:]:
        yield found[begin:]


def _after_group(found: Sequence[Token], at: int) -> int:
    if found[at].opens():
        return closing(found, at) + 1
    is_template = found[at].text == "<" and at > 0 and found[at - 1].kind == "word"
    return after_angles(found, at) if is_template else at + 1


def _type(parameter: Sequence[Token]) -> tuple[str, ...]:
    """Return the words and signs of a parameter's type: all but its name and its default; an array is a pointer."""
    texts = [token.text for token in parameter]
    texts = texts[: texts.index("=")] if "=" in texts else texts
    is_array = "[" in texts and "(" not in texts
    texts = texts[: texts.index("[")] if is_array else texts
    if len(texts) > 1 and parameter[len(texts) - 1].kind == "word" and texts[-1] not in _TYPE_ENDS:
        texts.pop()
    texts += ["*"] if is_array else []
    return tuple(text for text in texts if text not in ("const", "__restrict__"))


def _function_name(found: Sequence[Token], head: Head) -> str:
    if any(token.text == "operator" for token in head.top):
        return "operator"
    assert head.parameters is not None
    at, depth = head.parameters - 1, 0
    while at > head.start:  # back over the arguments of a specialisation, `f<int>(...)`
        if found[at].kind == "sign" and set(found[at].text) in ({"<"}, {">"}):
            depth += len(found[at].text) * (1 if found[at].text[0] == ">" else -1)
        elif depth <= 0:
            break
        at -= 1
    return found[at].text
