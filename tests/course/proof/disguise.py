"""Make a copy of a solution look like another's: new names and comments, another layout, functions in another order."""

from __future__ import annotations

import random
import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PIECE = re.compile(r'^[ \t]*#[^\n]*|"(?:\\.|[^"\\\n])*"|\.?\d(?:[eEpP][+-]|[\w.])*|\w+|<<=|>>=|[-+*/%&|^=!<>]=|'
                    r"&&|\|\||\+\+|--|->|<<|>>|::|\S", re.MULTILINE)  # fmt: skip
_NAME = re.compile(r"[^\W\d]\w*")
_CLOSED = re.compile(r"[;}]\s*$")

# What a source cannot name otherwise: words of C++ and CUDA, and what the exercises launch, read back or give.
_SET = frozenset(
    """alignas asm atomicAdd auto blockDim blockIdx bool break case char conditional const constexpr continue default do
    double else enum false float float2 float4 for gridDim if inline int int4 is_same long make_float4 min pragma
    reinterpret_cast return short signed sizeof static static_assert static_cast std struct switch template threadIdx
    true type typedef typename union unroll unsigned using value void volatile w warpSize while x y z
    reduce scan_block add_offsets scan_single_pass transform2 transform8 field vectors take_path path0 path1
    BLOCK_SIZE ITEMS_PER_THREAD MAX_BLOCKS INCLUSIVE SINGLE_PASS TILE_X TILE_Y""".split()  # noqa: SIM905
)
_SYLLABLES = ("ka", "lo", "mi", "ru", "te", "sun", "dor", "vel")
_REMARKS = ("// done", "// this part works", "/* my own idea */", "// see the lecture")


def disguised(source: str, rng: random.Random) -> str:
    """Return a copy that does the same: none of the names that can be changed, of the comments and of the layout stays.

    The order of functions changes where nothing but functions follows the first one.
    """
    return _laid_out(_reordered(_renamed(_COMMENT.sub("", source), rng), rng), rng)


def edited(source: str, rng: random.Random, edits: int = 1) -> str:
    """Return the source with statements that do nothing put behind as many others."""
    for k, end in enumerate(sorted(rng.sample(ends_of_statements(source), edits), reverse=True)):
        added = f"    int unused{k} = {rng.randrange(100)} * blockIdx.x; (void)unused{k};\n"
        source = source[:end] + added + source[end:]
    return source


def ends_of_statements(source: str) -> list[int]:
    """Return the places behind statements that have lines of their own."""
    return [match.end() for match in re.finditer(r";\n(?=[ \t]+(?!else)\w)", source)]


def _renamed(source: str, rng: random.Random) -> str:
    names = sorted(set(_NAME.findall(re.sub(r'"[^"\n]*"|^[ \t]*#[^\n]*', "", source, flags=re.MULTILINE))))
    own = [name for name in names if name not in _SET and not name.startswith(("__", "GPULAB_"))]
    new = {name: "".join(rng.choices(_SYLLABLES, k=3)) + str(k) for k, name in enumerate(own)}
    return re.sub(
        r'"[^"\n]*"|0[xX]\w+|\.?\d[\w.]*|^[ \t]*#[^\n]*|[^\W\d]\w*',
        lambda match: new.get(match[0], match[0]),
        source,
        flags=re.MULTILINE,
    )


def _reordered(source: str, rng: random.Random) -> str:
    chunks = _top_level(source)
    first = next((k for k, chunk in enumerate(chunks) if _is_function(chunk)), len(chunks))
    functions = chunks[first:]
    if not all(map(_is_function, functions)):
        return source
    declared = [chunk[: chunk.index("{")].rstrip() + ";\n" for chunk in functions]
    return "".join((*chunks[:first], *rng.sample(declared, len(declared)), *rng.sample(functions, len(functions))))


def _is_function(chunk: str) -> bool:
    return re.match(r"\s*__(device|global)__ [^;{=]*\([^;{]*\{", chunk) is not None


def _top_level(source: str) -> list[str]:
    """Return the source in pieces, each of which is a declaration, a definition or a directive."""
    chunks, chunk, depth = [], "", 0
    for line in source.splitlines(keepends=True):
        chunk += line
        depth += line.count("{") - line.count("}")
        is_whole = _CLOSED.search(chunk) or chunk.lstrip().startswith(("#", "GPULAB_TUNABLE")) or not chunk.strip()
        if depth == 0 and is_whole:
            chunks.append(chunk)
            chunk = ""
    return [*chunks, chunk] if chunk else chunks


def _laid_out(source: str, rng: random.Random) -> str:
    text = ""
    for piece in _PIECE.findall(source):
        if piece.lstrip().startswith("#"):
            text = text.rstrip(" ") + f"\n{piece.strip()}\n"
        else:
            text += piece + ("\n" + " " * rng.randrange(9) if piece in ";{}" and rng.random() < 0.8 else " ")
            if piece == ";" and rng.random() < 0.1:
                text = text.rstrip(" ") + f" {rng.choice(_REMARKS)}\n"
    return text
