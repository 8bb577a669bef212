"""The head of a C++ declaration: positions of its parameters, initial value, body and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .tokens import Token, closing

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
    listed = found[at + 1 : closing(found, at)]
    at = begin = 0
    while at < len(listed):
        if listed[at].text == ",":
            yield listed[begin:at]
            begin = at + 1
        at = _after_group(listed, at)
    if listed[begin:]:
        yield listed[begin:]


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
