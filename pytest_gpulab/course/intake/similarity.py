"""Similar pairs: sources of one exercise that are more alike than independent work. For reports, never for a grade.

Each source becomes a set of fingerprints by winnowing: of the hashes of all runs of `RUN` tokens, the smallest of every
`WINDOW` neighbours is kept. Two sources with a common run of `RUN + WINDOW - 1` tokens therefore share a fingerprint
(S. Schleimer, D. S. Wilkerson, A. Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003).
Fingerprints of the exercise's own files (skeleton, baselines, headers) are left out. The similarity of two sources is
Dice's coefficient: twice the number of common fingerprints, divided by the sum of both numbers. It is computed in two
views, and the larger value counts:

- by structure: tokens without comments, layout, braces, the names that the student chose, and the kinds of numbers.
  New names, another layout and another order of functions hardly change it.
- to the letter: every word and punctuation mark, with comments. These are individual even where the structure is
  common.

`MIN_SIMILARITY` is 0.7 for these reasons. Of the steps in `solutions/` and the kernels in `tests/honest/`, no two reach
0.59 by structure or 0.39 to the letter, except for the two single-pass scans, variants of one source, with 0.83.
Disguised copies of all of them stay above 0.84, with one added statement above 0.72, and with two added statements nine
of ten stay above 0.66. A source with fewer than `MIN_FINGERPRINTS` of its own is not compared: independent short
solutions are the same.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

RUN = 12
WINDOW = 4
MIN_SIMILARITY = 0.7
MIN_FINGERPRINTS = 20
MAX_TOKENS = 10_000  # ten times the longest solution; later tokens are ignored, to bound the time

_SOURCES = (".cu", ".cuh", ".h", ".hpp")
_TOKEN = re.compile(
    r"""(?P<skipped> ^[ \t]*\#[ \t]*(?:include|pragma)\b[^\n]* | [^\S\n]+ | \\?\n | //[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<text> "(?:\\.|[^"\\\n]){0,1000}" | '(?:\\.|[^'\\\n]){0,9}' )
    | (?P<number> \.?\d(?:[eEpP][+-]|[\w.'])* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> <<=|>>=|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|->|<<|>>|::|. )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_IGNORED = {"const", "constexpr", "static", "inline", "__forceinline__", "__restrict__", "{", "}"}
_TYPE = re.compile("auto|bool|char|double|float|int|long|short|signed|unsigned|size_t|u?int(8|16|32|64)_t")
_BUILTINS = re.compile(
    "alignas|asm|break|case|class|continue|default|delete|do|else|enum|extern|false|for|goto|if|namespace|new|nullptr|"
    "operator|reinterpret_cast|return|sizeof|static_assert|static_cast|struct|switch|template|this|true|typedef|"
    "typename|union|using|virtual|void|volatile|while|threadIdx|blockIdx|blockDim|gridDim|warpSize|__.*|GPULAB_.*"
)

LineRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Match:
    """A similar pair of submissions."""

    submissions: tuple[str, str]  # both, sorted
    similarity: float  # from `MIN_SIMILARITY` to 1
    to_the_letter: bool  # whether words and comments are more similar than the structure
    lines: tuple[LineRanges, LineRanges]  # the matching lines of each, as ranges (first, last) counted from 1


@dataclass(frozen=True)
class SimilarGroup:
    """Submissions, sorted, each similar to another; `matches` are a maximum spanning tree, most similar first."""

    submissions: tuple[str, ...]
    matches: tuple[Match, ...]


class _Token(NamedTuple):
    text: str
    line: int


Tokens = list[_Token]


class _View:
    """A view of all sources: their tokens, and their fingerprints without those of the given files."""

    def __init__(self, read: Callable[[str], Iterator[_Token]], sources: Mapping[str, str], given: list[str]) -> None:
        def tokens(source: str) -> Tokens:
            return list(islice(read(source), MAX_TOKENS))

        self.to_the_letter = read is _letters
        self._given = {run for source in given for run in _runs(tokens(source))}
        self._lines: dict[str, list[int]] = {}
        self._runs: dict[str, list[bytes]] = {}
        for name, source in sources.items():
            found = tokens(source)
            self._lines[name], self._runs[name] = [token.line for token in found], _runs(found)
        own = {name: _winnowed(runs) - self._given for name, runs in self._runs.items()}
        self._fingerprints = {name: found if len(found) >= MIN_FINGERPRINTS else set() for name, found in own.items()}

    def similarities(self, first: str, others: Iterable[str]) -> list[float]:
        """Return Dice's coefficient for each; 0 if one of the two has too few fingerprints."""
        one = self._fingerprints[first]
        if not one:
            return [0.0 for _ in others]
        return [2 * len(one & other) / (len(one) + len(other)) for other in map(self._fingerprints.__getitem__, others)]

    def lines(self, first: str, second: str) -> tuple[LineRanges, LineRanges]:
        """Return the matching lines of both."""
        one, other = self._runs[first], self._runs[second]
        shared = set(one) & set(other) - self._given
        return _ranges(self._lines[first], one, shared), _ranges(self._lines[second], other, shared)


class _Link(NamedTuple):
    """A similar pair, with the view in which it is most similar."""

    similarity: float
    first: str
    second: str
    view: _View

    @property
    def rank(self) -> tuple[float, str, str]:
        """A sort key: most similar first, equal ones by name."""
        return -self.similarity, self.first, self.second

    def match(self) -> Match:
        """Return the pair with its matching lines."""
        lines = self.view.lines(self.first, self.second)
        return Match((self.first, self.second), self.similarity, self.view.to_the_letter, lines)


def similar_groups(
    sources: Mapping[str, bytes], given: Iterable[bytes] = (), owners: Mapping[str, str] | None = None
) -> tuple[SimilarGroup, ...]:
    """Return the groups of similar submissions among `sources` of one exercise, those with the most similar pair first.

    What every student was `given` (see `given_with`) is left out. Submissions of one of the `owners` are not compared.
    """
    texts, shared = {name: _text(source) for name, source in sources.items()}, [_text(source) for source in given]
    views = (_View(_structure, texts, shared), _View(_letters, texts, shared))
    links, names = [], sorted(texts)
    for nth, first in enumerate(names):
        others = names[nth + 1 :]
        for second, *found in zip(others, *(view.similarities(first, others) for view in views), strict=True):
            closest = max(found)
            if closest >= MIN_SIMILARITY and (owners is None or owners[first] != owners[second]):
                links.append(_Link(closest, first, second, views[found.index(closest)]))
    return tuple(
        SimilarGroup(tuple(sorted(names)), tuple(link.match() for link in tree)) for names, tree in _forest(links)
    )


def given_with(exercise: Path) -> list[bytes]:
    """Return the sources in an exercise's folder, which every student has, or raise OSError."""
    return [path.read_bytes() for path in sorted(exercise.iterdir()) if path.suffix in _SOURCES]


def _forest(links: list[_Link]) -> list[tuple[set[str], list[_Link]]]:
    """Return connected submissions, each with its maximum spanning tree (Kruskal's algorithm)."""
    trees: dict[str, tuple[set[str], list[_Link]]] = {}
    for link in sorted(links, key=lambda link: link.rank):
        one, other = trees.get(link.first, ({link.first}, [])), trees.get(link.second, ({link.second}, []))
        if one is not other:
            tree = (one[0] | other[0], sorted([*one[1], *other[1], link], key=lambda link: link.rank))
            trees.update(dict.fromkeys(tree[0], tree))
    found = {id(tree): tree for tree in trees.values()}.values()
    return sorted(found, key=lambda tree: tree[1][0].rank)


def _text(source: bytes) -> str:
    return source.decode("utf-8", "replace")


def _structure(source: str) -> Iterator[_Token]:
    line, seen, last = 1, 0, ""
    for found in _TOKEN.finditer(source):
        text = _normal(found)
        if text and not text == last == "type":
            line, seen = line + source.count("\n", seen, found.start()), found.start()
            yield _Token(text, line)
            last = text


def _normal(found: re.Match[str]) -> str:
    """Return the token's substitute in the view by structure; empty if it is ignored."""
    kind, text = found.lastgroup, found[0]
    if kind == "skipped" or text in _IGNORED:
        return ""
    if kind == "number":
        return text.lower().rstrip("ulf")
    if kind != "name" or _BUILTINS.fullmatch(text):
        return text
    return "type" if _TYPE.fullmatch(text) else "name"


def _letters(source: str) -> Iterator[_Token]:
    line, seen = 1, 0
    for found in _WORD_OR_SIGN.finditer(source):
        line, seen = line + source.count("\n", seen, found.start()), found.start()
        yield _Token(found[0], line)


def _runs(tokens: Tokens) -> list[bytes]:
    """Return the hashes of all runs of tokens, in their order."""
    texts = [token.text.encode("utf-8", "replace") for token in tokens]
    return [blake2b(b" ".join(texts[i : i + RUN]), digest_size=8).digest() for i in range(len(texts) - RUN + 1)]


def _winnowed(runs: list[bytes]) -> set[bytes]:
    return {min(runs[i : i + WINDOW]) for i in range(len(runs) - WINDOW + 1)}


def _ranges(lines: list[int], runs: list[bytes], shared: set[bytes]) -> LineRanges:
    """Return the lines of all tokens in shared runs; adjoining ranges are merged."""
    ranges: list[tuple[int, int]] = []
    for i, run in enumerate(runs):
        if run in shared:
            first, last = lines[i], lines[i + RUN - 1]
            if ranges and first <= ranges[-1][1] + 1:
                first, last = ranges.pop()[0], max(last, first)
            ranges.append((first, last))
    return tuple(ranges)
