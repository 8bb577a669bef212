"""The declarations of a CUDA C++ file at namespace scope: extents, names, and host or device side.

The parser reads brackets and declaration heads, not the whole language. A declaration that it does not understand gets
the kind "device", which keeps its text unchanged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from .tokens import (
    ATTRIBUTE_FORM,
    CLASSES,
    DEVICE_MARKS,
    Head,
    Macro,
    Signature,
    Token,
    closing,
    define,
    marking,
    signature_of,
    tokens,
)

Kind = Literal["device", "neutral", "host"]


@dataclass(frozen=True, eq=False)
class Declaration:
    """A declaration, or the call of a macro, at namespace scope."""

    # `device` is kept; `neutral` (types, constants, constexpr functions) is kept if device code names it; `host` is
    # removed
    kind: Kind
    names: frozenset[str]  # the declared names
    words: frozenset[str]
    start: int  # its first position in the text
    end: int  # the position after its last
    what: str = ""  # `kernel template`, `class`, `array`, or another kind of declaration
    body: int = 0  # beginning of a function's body or initialiser list in the text; else the end
    parts: tuple[Token, ...] = field(default=(), repr=False)  # the tokens of a class; else empty
    top: frozenset[str] = frozenset()  # the words outside brackets
    signature: Signature | None = None  # name and parameters of a function; else None
    namespaces: tuple[str, ...] = ()  # the named namespaces around it

    @property
    def unusable(self) -> str:
        """A type per declared name, in place of the declaration: an expression that names it does not compile."""
        return " ".join(f"struct {name};" for name in sorted(self.names))


class Parsed(NamedTuple):
    """A parsed file: declarations at namespace scope, directives, and the macros of the file and its headers."""

    declarations: tuple[Declaration, ...]
    directives: tuple[Token, ...]
    macros: Mapping[str, Macro]


class TooDeep(Exception):
    """A text with brackets or conditions nested more than `MAX_DEPTH` deep."""


MAX_DEPTH = 100


def parse(text: str, headers: Iterable[str] = ()) -> Parsed:
    """Parse a file, with the macros of its headers, or raise TooDeep if it is nested too deeply."""
    found = tokens(text)
    macros: dict[str, Macro] = {}
    for header in headers:
        define(macros, tokens(header))
    define(macros, found)
    braces = {name: macro.brace for name, macro in macros.items() if macro.brace}
    if braces:
        found = tuple(
            Token("sign", braces[each.text], each.start, each.end) if each.text in braces else each for each in found
        )
    _check_depth(found)
    directives = tuple(token for token in found if token.kind == "directive")
    declarations = _Parser(_outside_skipped(found), macros).parsed()
    return Parsed(tuple(declarations), directives, macros)


def _check_depth(found: Iterable[Token]) -> None:
    brackets = conditions = 0
    for token in found:
        if token.kind == "sign":
            brackets = max(brackets + (token.text == "{") - (token.text == "}"), 0)
        elif token.kind == "directive":
            conditions = max(conditions + token.text.startswith("if") - (token.text == "endif"), 0)
        if max(brackets, conditions) > MAX_DEPTH:
            raise TooDeep


def _outside_skipped(found: Sequence[Token]) -> list[Token]:
    """Return the tokens without directives, and of an `#if` with unbalanced branches only the first branch.

    If the brackets of every branch are balanced, all branches are kept: each may hold whole declarations.
    """
    kept, _ = _branch(found, 0, is_outermost=True)
    return kept


def _branch(found: Sequence[Token], at: int, is_outermost: bool = False) -> tuple[list[Token], int]:
    """Return the tokens of a branch, and the index of the directive that ends it."""
    kept: list[Token] = []
    while at < len(found):
        token = found[at]
        if token.kind != "directive":
            kept.append(token)
        elif token.text in ("if", "ifdef", "ifndef"):
            chosen, at = _chain(found, at)
            kept += chosen
        elif token.text in ("elif", "else", "endif", "elifdef", "elifndef") and not is_outermost:
            break
        at += 1
    return kept, at


def _chain(found: Sequence[Token], at: int) -> tuple[list[Token], int]:
    """Return the tokens of the branches that count, and the index of `#endif`."""
    branches: list[list[Token]] = []
    while at < len(found):
        is_never = [part.text for part in found[at].within] == ["if", "0"]
        branch, at = _branch(found, at + 1)
        if not is_never:
            branches.append(branch)
        if at >= len(found) or found[at].text == "endif":
            break
    if all(map(_is_balanced, branches)):
        return [token for branch in branches for token in branch], at
    return (branches[0] if branches else []), at


def _is_balanced(branch: Iterable[Token]) -> bool:
    open_brackets: list[str] = []
    for token in branch:
        if closing := token.opens():
            open_brackets.append(closing)
        elif token.kind == "sign" and token.text in ")]}" and (not open_brackets or open_brackets.pop() != token.text):
            return False
    return not open_brackets


def members(found: Sequence[Token], macros: Mapping[str, Macro]) -> list[Declaration]:
    """Return the members of a class, from the tokens of its definition."""
    head = Head(found, 0)
    assert head.classes is not None
    inside = found[head.classes + 1 : closing(found, head.classes)]
    kept: list[Token] = []
    for token in inside:
        if token.text == ":" and kept and kept[-1].text in _ACCESS:
            kept.pop()
        else:
            kept.append(token)
    return _Parser(kept, macros).parsed()


_WORD = re.compile(r"[^\W\d]\w*")
_MARK = re.compile(r"__\w+__")
_HOST_MARKS = frozenset(
    ("__host__", "__forceinline__", "__noinline__", "__inline__", "__restrict__", "__attribute__", "__const__",
     "__extension__", "__volatile__", "__signed__", "__typeof__", "__align__")
)  # fmt: skip
_ACCESS = ("public", "private", "protected")


class _Parser:
    def __init__(self, found: Sequence[Token], macros: Mapping[str, Macro]) -> None:
        self._found, self._macros = found, macros
        self._marking = marking(macros)
        self._annotated: set[Signature] = set()
        self._namespaces: tuple[str, ...] = ()

    def parsed(self) -> list[Declaration]:
        declarations: list[Declaration] = []
        at = 0
        while at < len(self._found):
            at = self._scope(at, declarations)
            at += 1  # skip an unmatched closing bracket
        return declarations

    def _scope(self, at: int, declarations: list[Declaration]) -> int:
        """Read up to the bracket that closes the scope; return its index."""
        found = self._found
        while at < len(found) and not (found[at].text == "}" and found[at].kind == "sign"):
            inner = self._block(at)
            if inner is not None:
                outer, words = self._namespaces, (token.text for token in found[at:inner] if token.kind == "word")
                self._namespaces = (*outer, *(word for word in words if word not in ("inline", "namespace", "extern")))
                at = self._scope(inner, declarations) + 1
                self._namespaces = outer
            elif found[at].text == ";":
                at += 1
            else:
                at = self._declaration(at, declarations)
        return at

    def _block(self, at: int) -> int | None:
        """Return the index after `namespace ... {` or `extern "C" {` if one begins at `at`, else None."""
        found = self._found
        if found[at].text == "inline" and found[at + 1 : at + 2] and found[at + 1].text == "namespace":
            at += 1
        if found[at].text == "namespace":
            while at < len(found) and found[at].text not in ("{", ";", "="):
                at += 1
            return at + 1 if at < len(found) and found[at].text == "{" else None
        if found[at].text == "extern" and [t.text for t in found[at + 2 : at + 3]] == ["{"]:
            return at + 3
        return None

    def _declaration(self, at: int, declarations: list[Declaration]) -> int:
        call = self._macro_call(at)
        if call is not None:
            declarations.append(self._made("device", at, call, (), "macro"))
            return call
        if self._found[at].text == "{" and declarations:  # another body of the same function, under another condition
            end = closing(self._found, at) + 1
            declarations.append(self._made(declarations[-1].kind, at, end, declarations[-1].names, "body"))
            return end
        head = Head(self._found, at)
        end = max(head.end, at + 1)
        kind, what = self._kind(head, end)
        names = _names(self._found, head, end, what)
        made = self._made(kind, at, end, names, what, head)
        declared = members(self._found[at:end], self._macros) if what == "class" else (made,)
        self._annotated |= {each.signature for each in declared if each.kind == "device" and each.signature}
        declarations.append(made)
        return end

    def _macro_call(self, at: int) -> int | None:
        """Return the index after the call of a macro that is a whole declaration, else None."""
        macro = self._macros.get(self._found[at].text)
        if macro is None or not macro.is_complete:
            return None
        if not macro.is_function:
            return at + 1
        if [token.text for token in self._found[at + 1 : at + 2]] != ["("]:
            return None
        end = closing(self._found, at + 1) + 1
        return None if [token.text for token in self._found[end : end + 1]] == ["{"] else end

    def _made(
        self, kind: Kind, at: int, end: int, names: Iterable[str], what: str, head: Head | None = None
    ) -> Declaration:
        part = tuple(self._found[at:end])
        words = frozenset(token.text for token in part if token.kind == "word")
        start, end_at = part[0].start, part[-1].end
        if head is None:
            return Declaration(kind, frozenset(names), words, start, end_at, what, end_at)
        body = self._found[head.body].start if head.body is not None else end_at
        parts = part if head.classes is not None and what == "class" else ()
        top = frozenset(token.text for token in head.top)
        signature = signature_of(self._found, head)
        namespaces = self._namespaces
        return Declaration(kind, frozenset(names), words, start, end_at, what, body, parts, top, signature, namespaces)

    def _kind(self, head: Head, end: int) -> tuple[Kind, str]:
        found = self._found
        until = head.body if head.body is not None else end
        texts = [token.text for token in found[head.start : until]]
        tops = [token.text for token in head.top]
        if head.body is not None and self._is_marked([t.text for t in found[head.body : end]], ("__global__",)):
            return "device", "unclear"
        if head.classes is not None and "__global__" in texts and self._has_kernel(found[head.start : end]):
            return "device", "class"
        if self._is_marked(texts) and (head.classes is None or self._is_marked(tops)):
            is_template = texts[:2] == ["template", "<"] and texts[2:3] != [">"] and head.parameters is not None
            is_kernel = self._is_marked(texts, ("__global__",))
            return "device", "kernel template" if is_template and is_kernel else "marked"
        return _type_or_directive(head, texts[0], tops) or self._unmarked(head, tops)

    def _has_kernel(self, definition: Sequence[Token]) -> bool:
        """Return whether a class has a kernel as a member, which the compiler must refuse."""
        return any(
            "__global__" in member.words - {"friend"} and "friend" not in member.top
            for member in members(definition, self._macros)
        )

    def _unmarked(self, head: Head, tops: Sequence[str]) -> tuple[Kind, str]:
        """Classify a function or a variable."""
        is_function = head.parameters is not None and head.body is not None
        if "constexpr" in tops or "consteval" in tops:
            return "neutral", "function" if is_function else _variable(tops)
        if signature_of(self._found, head) in self._annotated:
            return "device", "marked before"
        if head.parameters is None and _is_constant(tops):
            return "neutral", _variable(tops)
        if not self._is_understood(tops, head):
            return "device", "unclear"
        return "host", "function" if head.parameters is not None else "declaration"

    def _is_understood(self, tops: Sequence[str], head: Head) -> bool:
        """Return whether it is host code and not a mistake, such as a misspelt mark, that the compiler must report."""
        words = [text for text in tops if _WORD.fullmatch(text)]
        unknown = [
            word for word in words if _MARK.fullmatch(word) and word not in _HOST_MARKS and word not in self._macros
        ]
        return not unknown and (len(words) > 1 or head.parameters is not None or bool(head.pointer))

    def _is_marked(self, texts: Iterable[str], marks: Iterable[str] = DEVICE_MARKS) -> bool:
        words = set(texts)
        if not words.isdisjoint(set(marks) - ATTRIBUTE_FORM):
            return True
        if "__attribute__" in words and not words.isdisjoint(ATTRIBUTE_FORM):
            return True
        return any(self._marking.get(word, frozenset()) & frozenset(marks) for word in words)


def _type_or_directive(head: Head, first: str, tops: Sequence[str]) -> tuple[Kind, str] | None:
    """Classify a declaration that is neither a function nor a variable; return None for those."""
    is_function = head.parameters is not None
    if first == "using" and _HOST_NAMESPACE.fullmatch("".join(tops[2:])):
        return "host", "declaration"
    if first in ("static_assert", "asm", "__asm__") or (first == "using" and "namespace" in tops):
        return "device", "kept"
    if head.classes is not None:
        return "neutral", "type" if "enum" in tops else "class"
    if first in ("using", "typedef", "concept", "namespace") or not {"using", "concept"}.isdisjoint(tops):
        return "neutral", "type"
    if not is_function and ("enum" in tops or (CLASSES.intersection(tops) and len(tops) <= _FORWARD)):
        return "neutral", "type"
    return None


_HOST_NAMESPACE = re.compile(
    r"(?:::)?(?:thrust(?:::.*)?|(?:std::)?(?:chrono|chrono_literals|string_literals|filesystem|this_thread)"
    r"|std::(?:literals(?:::.*)?|string_view_literals|experimental::filesystem|placeholders|ranges|views|pmr|execution))"
)
"""Namespaces that only headers without device code declare."""

_FORWARD = 2  # words of `struct A;`


def _is_constant(tops: Sequence[str]) -> bool:
    """Return whether it is a constant of which device code may use the value: no pointer, no reference."""
    before = tops[: tops.index("=")] if "=" in tops else list(tops)
    return "const" in before and not {"*", "&", "extern"}.intersection(before)


def _variable(tops: Sequence[str]) -> str:
    before = tops[: tops.index("=")] if "=" in tops else tops
    return "array" if "[" in before or "]" in before else "constant"


def _names(found: Sequence[Token], head: Head, end: int, what: str) -> frozenset[str]:
    """Return the declared names; additional names do no harm."""
    if head.parameters is not None and what not in ("class", "type"):
        signature = signature_of(found, head)
        assert signature is not None
        return frozenset((signature.name,))
    first = next(
        (t.text for t in head.top if t.text in ("using", "typedef", "enum", *CLASSES, "namespace", "concept")), ""
    )
    part = found[head.start : end]
    if first == "enum":
        return frozenset(token.text for token in part if token.kind == "word") - {"enum", "class", "struct", "int"}
    if first == "typedef":
        words = [token.text for token in part if token.kind == "word"]
        inner = [token.text for token in part if token.kind == "word"] if head.parameters is not None else words[-1:]
        return frozenset(inner)
    top = [*head.top, Token("sign", ";", 0, 0)]
    named = {token.text for token, after in pairwise(top) if token.kind == "word" and after.text in _AFTER_NAME}
    return frozenset(named | {head.pointer} - {""})


_AFTER_NAME = ("=", "{", "[", ";", ",", "(", ":", "<", "final")
