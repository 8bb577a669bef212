"""CUDA headers that a source does not need, by its identifiers: parsing headers is more than half of nvcc's work.

nvcc includes `cuda_runtime.h` before every file. It declares the host API, the C library and a thousand device
functions, of which a kernel calls a dozen. Our header of that name (`include/nvcc`) omits the host API. A defined
include guard skips each further CUDA header that declares none of the identifiers in the source.

If the identifiers do not decide, a source gets all headers; the same if it does not compile without them.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# The headers for kernels in `cuda_runtime.h`, without those that every kernel needs.
_OPTIONAL = (
    "vector_functions.h", "crt/common_functions.h", "crt/math_functions.h", "crt/device_functions.hpp",
    "crt/device_double_functions.h", "device_atomic_functions.h", "sm_20_atomic_functions.h",
    "sm_32_atomic_functions.h", "sm_60_atomic_functions.h", "sm_20_intrinsics.h", "sm_30_intrinsics.h",
    "sm_32_intrinsics.h", "sm_61_intrinsics.h", "crt/sm_70_rt.h", "crt/sm_80_rt.h", "crt/sm_90_rt.h",
    "crt/sm_100_rt.h",
)  # fmt: skip
_MATHEMATICS = "__MATH_FUNCTIONS_H__"
_LITTLE_MATHEMATICS, _LITTLE = "GPULAB_MIN_MAX", frozenset(("min", "max", "fminf", "fmaxf"))  # see gpulab_min_max.h
# Comments, and string literals, in which no comment begins. Unterminated ones match, too: otherwise the regex would
# search to the end of the text from each beginning (quadratic time).
_COMMENT = re.compile(r"""/\*.*?(?:\*/|\Z)|//[^\n]*|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(|\boperator\s+(new|delete)\b")
_NO_FUNCTION = re.compile(
    r"[A-Z_0-9]+|__attribute__|__has_include|__pragma|asm|defined|deprecated|elif|else|error|if|message|noexcept|return"
    r"|sizeof|throw|visibility|void|volatile|warning"
)
# Texts that exclude a decision: names that are ambiguous, overloaded or defined with all headers, and may have another
# meaning without them instead of an error; token pasting; host functions; textures and surfaces.
_UNDECIDABLE = re.compile(
    r"\b(?:namespace|std)\b|__cpp_lib_|_GLIBCXX|__glibcxx|__USE_|##|%:%:|\b(?:cuda|tex|surf)[A-Z1-3]|\bCUDART_"
)
_JOINT = re.compile(r"\\[ \t\f\v\r]*\n")
_DIRECTIVE = re.compile(r"^[ \t\f\v\r]*(?:#|%:)[ \t\f\v]*(\w*)(.*)$", re.MULTILINE)
_HARMLESS = ("", "define", "undef", "pragma", "line", "error", "warning", "else", "endif")
_INCLUDED = re.compile(r"""[ \t]*(?:<([\w.]+)>|"([\w.]+)")""")
# Headers that declare nothing new to kernels; with all headers, most of them are included before the file.
_OF_C = frozenset(
    form.format(name)
    for name in ("assert", "float", "limits", "math", "stddef", "stdint", "stdio", "stdlib", "string")
    for form in ("{}.h", "c{}")
)
_FOR_HOSTS = _OF_C | {"gpulab.cuh", "cuda_runtime.h", "device_launch_parameters.h"}
# Macros that are defined without headers, or in none of the optional headers.
_SAME = re.compile(
    r"defined|__CUDA_ARCH__|__CUDACC__|__NVCC__|__cplusplus|NDEBUG|DEBUG"
    r"|(?=[A-Z]\w{1,60}\Z)(?:GPULAB_.*|.*_C?U?H|.*(?:BLOCK|THREAD|TILE|WARP).*)"
)


@dataclass(frozen=True)
class _Header:
    """An optional header."""

    guard: str  # the include guard, which skips it
    declared: frozenset[str]  # the functions that it declares
    called: frozenset[str]  # functions of other headers that these call


def unneeded_headers(include: Path, text: str, headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the include guards of the CUDA headers in `include` that a source does not need; None if it gets all.

    `text` is the source with its macro definitions. It may include the texts of `headers`, too.
    """
    text = "\n".join((*headers.values(), text))
    code = _COMMENT.sub(lambda found: found[1] or " ", _JOINT.sub("", text))
    known = _FOR_HOSTS.union(headers)
    optional, directives = _optional(include), _DIRECTIVE.findall(code)
    if (
        not optional
        or _UNDECIDABLE.search(code)
        or not all(_is_unaffected(name, rest, known) for name, rest in directives)
    ):
        return None
    if _defines_before_including(directives):
        return None
    words, instead = set(_WORD.findall(code)), set[str]()
    if _calls_little_mathematics(optional, words):
        words, instead = words - _LITTLE, {_LITTLE_MATHEMATICS}
    missing = set(optional)
    while needed := [header for header in missing if not header.declared.isdisjoint(words)]:
        missing.difference_update(needed)
        words = set().union(*(header.called for header in needed))
    guards = {header.guard for header in missing}
    return tuple(sorted(guards | instead if _MATHEMATICS in guards else guards))


def _calls_little_mathematics(optional: Iterable[_Header], words: set[str]) -> bool:
    """Return True if our min and max suffice; beside the C library's math functions they do not compile."""
    called = {name for header in optional if header.guard == _MATHEMATICS for name in header.declared & words}
    return bool(called) and called <= _LITTLE and words.isdisjoint(("math", "cmath"))


def _is_unaffected(name: str, operand: str, known: Collection[str]) -> bool:
    """Return True if a directive has the same effect with fewer headers."""
    if name == "include":
        return _included(operand) in known
    if name in ("if", "ifdef", "ifndef", "elif"):
        return all(map(_SAME.fullmatch, _WORD.findall(operand)))
    return name in _HARMLESS or name.isdigit()


def _defines_before_including(directives: Iterable[tuple[str, str]]) -> bool:
    """Return True if a C header follows a macro that may affect it: with all headers, it would precede the macro."""
    is_defined = False
    for name, operand in directives:
        if name in ("define", "undef"):
            macro = _WORD.match(operand.lstrip())
            is_defined = is_defined or macro is None or not _SAME.fullmatch(macro[0])
        elif name == "include" and is_defined and _included(operand) in _OF_C:
            return True
    return False


def _included(operand: str) -> str:
    found = _INCLUDED.match(operand)
    return (found[1] or found[2]) if found else ""


@lru_cache(maxsize=1)
def _optional(include: Path) -> tuple[_Header, ...]:
    """Return the optional headers; none if the folder does not have CUDA's headers."""
    try:
        return tuple(_read(include / name) for name in _OPTIONAL if (include / name).exists())
    except OSError:
        return ()


def _read(path: Path) -> _Header:
    declared, definitions = _functions(path), path.with_suffix(".hpp")
    if path == definitions:  # it defines functions that its `.h` declares, by calling others
        called = declared
    else:
        called = _functions(definitions) - declared if definitions.exists() else frozenset()
    return _Header(f"__{path.name.upper().replace('.', '_')}__", declared, called)


def _functions(path: Path) -> frozenset[str]:
    """Return all functions that a header declares, defines or calls."""
    text = _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    found = {name or operator for name, operator in _CALLED.findall(text)}
    return frozenset(name for name in found if not _NO_FUNCTION.fullmatch(name))
