"""Small mistakes in a correct kernel, one at a time: those of a tired programmer.

The mutator works on tokens and knows no C++ beyond them, so some mutants do not compile. The same source and seed give
the same mutants.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

TOKEN = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\#(?:[^\n\\]|\\.|\\\n)*|\s+|\"[^\"\n]*\")"
    r"|(?P<number>(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e[-+]?\d+)?)[uUfFlL]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|->|::|[-+*/%&|^]=|.)",
    re.S,
)
SWAPS = {
    **{"+": ("-", "*"), "-": ("+",), "*": ("+", "/"), "/": ("*", "%"), "%": ("/",), "<<": (">>",), ">>": ("<<",)},
    **{
        "<": ("<=", ">", "!="),
        "<=": ("<", "=="),
        ">": (">=", "<"),
        ">=": (">", "=="),
        "==": ("!=", "<="),
        "!=": ("==",),
    },
    **{"&&": ("||",), "||": ("&&",), "&": ("|",), "|": ("&",), "^": ("|",), "++": ("--",), "--": ("++",)},
    **{"+=": ("=", "-="), "-=": ("=", "+="), "*=": ("+=", "="), "/=": ("*=", "-="), ">>=": ("-=",), "<<=": ("+=",)},
}
BARRIERS = ("__syncthreads", "__syncwarp", "__threadfence", "__threadfence_block")
SYMMETRIC = {"max", "min", "fmaxf", "fminf", "fmax", "fmin"}  # the order of arguments makes no difference
UNTOUCHED = ("GPULAB_TUNABLE", "static_assert", "template", "enum", "struct")  # statements that are no computation
TYPES = {"void", "float", "int", "unsigned", "long", "const", "constexpr", "volatile", "float2", "float4", "GPULAB_T"}
KEYWORDS = {"if", "for", "while", "do", "return", "else", "sizeof", "reinterpret_cast", "switch", "case", "true"}
HALF = """
__device__ inline float gpulab_rounded(float v)
{ return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u); }
__device__ inline int gpulab_rounded(int v) { return v; }
__device__ inline unsigned gpulab_rounded(unsigned v) { return v; }
__device__ inline float gpulab_cut_off(float v) { return (int)v; }
__device__ inline int gpulab_cut_off(int v) { return v; }
__device__ inline unsigned gpulab_cut_off(unsigned v) { return v; }
"""


@dataclass(frozen=True)
class Token:
    """A token with its place in the source."""

    kind: str
    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class Edit:
    """One change: the text in place of that between two places."""

    kind: str
    begin: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """A source with one mistake, its line in the original, from 1, and this line before and after.

    A pair of mistakes has both as mutants of their own in `parts`.
    """

    kind: str
    line: int
    what: str
    source: str
    parts: tuple[Mutant, ...] = ()


def mutants(source: str, count: int, seed: int, pairs: bool = True) -> list[Mutant]:
    """Return at most `count` different mutants in random order; if single ones are too few, `pairs` adds pairs."""
    rng = random.Random(seed)
    tokens = [Token(m.lastgroup or "", m[0], *m.span()) for m in TOKEN.finditer(source) if m.lastgroup != "skip"]
    edits = _in_turns([list(dict.fromkeys(way(tokens, source))) for way in WAYS], rng)
    found = {applied(source, [edit]): [edit] for edit in edits}
    for _ in range(100 * count if pairs and len(edits) > 1 else 0):
        if len(found) >= count:
            break
        one, other = sorted(rng.sample(edits, 2), key=lambda edit: edit.begin)
        if one.end <= other.begin:
            found.setdefault(applied(source, [one, other]), [one, other])
    found.pop(source, None)
    return [_described(source, text, edits) for text, edits in list(found.items())[:count]]


def _in_turns(kinds: list[list[Edit]], rng: random.Random) -> list[Edit]:
    """Shuffle the edits of each kind, and take one of every kind in turn: some kinds have far more than others."""
    for edits in kinds:
        rng.shuffle(edits)
    return [edit for row in zip_longest(*kinds) for edit in row if edit is not None]


def applied(source: str, edits: list[Edit]) -> str:
    """Return the source with the edits, given in the order of their places."""
    for edit in reversed(edits):
        source = source[: edit.begin] + edit.text + source[edit.end :]
    header = "#include <gpulab.cuh>\n"
    return source.replace(header, header + HALF.replace("\n", " ") + "\n", 1) if "gpulab_" in source else source


def _described(source: str, mutated: str, edits: list[Edit]) -> Mutant:
    if len(edits) > 1:
        parts = tuple(_described(source, applied(source, [edit]), [edit]) for edit in edits)
        kind, what = " and ".join(part.kind for part in parts), "  AND  ".join(part.what for part in parts)
        return Mutant(kind, parts[0].line, what, mutated, parts)
    (edit,) = edits
    begin, end = source.rfind("\n", 0, edit.begin) + 1, source.find("\n", edit.end)
    after = source[begin : edit.begin] + edit.text + source[edit.end : end]
    what = f"{' '.join(source[begin:end].split())}  =>  {' '.join(after.split())}"
    return Mutant(edit.kind, source.count("\n", 0, edit.begin) + 1, what, mutated)


def statements(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield first and last token of each text that ends in a semicolon outside of parentheses."""
    begin, depth = 0, 0
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text in "{}":
            begin, depth = at + 1, 0
        elif token.text == ";" and depth == 0:
            yield begin, at
            begin = at + 1


def computing(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens of functions' bodies, without declared choices."""
    for begin, end in _bodies(tokens):
        skipped: set[int] = set()
        for first, last in statements(tokens[begin:end]):
            if tokens[begin + first].text in UNTOUCHED:
                skipped.update(range(begin + first, begin + last + 1))
        yield from (token for at, token in enumerate(tokens[begin:end], begin) if at not in skipped)


def _bodies(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the token ranges of functions' bodies: braces that follow a closing parenthesis at the outermost level."""
    depth = begin = 0
    for at, token in enumerate(tokens):
        if token.text == "{":
            begin = at if depth == 0 else begin
            depth += 1
        elif token.text == "}":
            depth -= 1
            if depth == 0 and tokens[begin - 1].text == ")":
                yield begin, at


def other_operators(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Replace an operator."""
    for token in computing(tokens):
        for text in SWAPS.get(token.text, ()):
            yield Edit("operator", token.begin, token.end, text)


def other_numbers(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Change a number by one, or double it."""
    for token in computing(tokens):
        if token.kind == "number" and "x" not in token.text:
            for change in ("+ 1", "- 1", "* 2"):
                yield Edit("number", token.begin, token.end, f"({token.text} {change})")


def other_indices(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Change an index by one, or double it."""
    inside = list(computing(tokens))
    for at, token in enumerate(inside):
        if token.text == "]" and inside[at - 1].text != "[":
            for change in (" + 1", " - 1", " * 2"):
                yield Edit("index", token.begin, token.begin, change)


def other_names(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Take another variable that is used nearby; declarations, calls and members stay."""
    inside = list(computing(tokens))
    places = [at for at in range(1, len(inside) - 1) if _is_used(inside, at)]
    for at in places:
        near = {inside[k].text for k in places if abs(k - at) < 20} - {inside[at].text}
        for other in sorted(near)[:3]:
            yield Edit("name", inside[at].begin, inside[at].end, other)


def _is_used(tokens: list[Token], at: int) -> bool:
    before, token, after = tokens[at - 1 : at + 2]
    is_name = token.kind == "name" and token.text not in TYPES | KEYWORDS and not token.text.startswith("__")
    return is_name and before.text not in TYPES | {"."} and after.text not in {"(", "<"}


def without_barriers(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Remove a barrier or a fence."""
    for token in tokens:
        if token.text in BARRIERS:
            yield Edit("barrier", token.begin, source.index(";", token.end), "")


def without_statements(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Remove a statement."""
    for first, last in _inner_statements(tokens):
        if tokens[first].text not in {*TYPES, *BARRIERS} and first < last:
            yield Edit("statement", tokens[first].begin, tokens[last].begin, "")


def through_other_types(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Round an assigned value to half precision, or cut off its fraction."""
    for first, last in _inner_statements(tokens):
        signs = [at for at in range(first, last) if tokens[at].text in ("=", "+=")]
        if signs:
            value = source[tokens[signs[0]].end : tokens[last].begin]
            for how in ("gpulab_rounded", "gpulab_cut_off"):
                yield Edit("cast", tokens[signs[0]].end, tokens[last].begin, f" {how}({value.strip()})")


def other_conditions(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Replace a condition by true, by false, or by its opposite."""
    inside = list(computing(tokens))
    for at, token in enumerate(inside):
        if token.text in ("if", "while") and inside[at + 1].text == "(":
            end = _closing(inside, at + 1)
            for value in ("true", "false"):
                yield Edit("condition", inside[at + 1].end, inside[end].begin, value)
            condition = source[inside[at + 1].end : inside[end].begin]
            yield Edit("condition", inside[at + 1].end, inside[end].begin, f"!({condition})")


def other_arguments(tokens: list[Token], source: str) -> Iterator[Edit]:
    """Swap two neighbouring arguments of a call."""
    inside = list(computing(tokens))
    for at, token in enumerate(inside[:-1]):
        if token.kind == "name" and inside[at + 1].text == "(" and token.text not in KEYWORDS | SYMMETRIC:
            end, depth, cuts = _closing(inside, at + 1), 0, [at + 1]
            for k in range(at + 2, end):
                depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(inside[k].text, 0)
                if inside[k].text == "," and depth == 0:
                    cuts.append(k)
            cuts.append(end)
            pieces = [source[inside[a].end : inside[b].begin] for a, b in pairwise(cuts)]
            for k in range(len(pieces) - 1):
                swapped = f"{pieces[k + 1].strip()}, {pieces[k].strip()}"
                yield Edit("arguments", inside[cuts[k]].end, inside[cuts[k + 2]].begin, swapped)


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
        if depth == 0:
            return at
    return len(tokens) - 1


def _inner_statements(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    for begin, end in _bodies(tokens):
        for first, last in statements(tokens[begin : end + 1]):
            if tokens[begin + first].text not in UNTOUCHED:
                yield begin + first, begin + last


WAYS: tuple[Callable[[list[Token], str], Iterator[Edit]], ...] = (
    other_operators,
    other_numbers,
    other_indices,
    other_names,
    without_barriers,
    without_statements,
    through_other_types,
    other_conditions,
    other_arguments,
)
