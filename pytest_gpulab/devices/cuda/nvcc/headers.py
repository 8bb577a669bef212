"""Which of CUDA's headers a text can do without, told by its words: to read them is more than half of nvcc's work.

nvcc puts `cuda_runtime.h` in front of every file, and with it what hosts call, the C library and a thousand functions
for kernels, of which a kernel calls a dozen. Our header of that name (`include/nvcc`) leaves out what hosts call; a
macro each, CUDA's own include guard, keeps out every other header that declares none of the words that a text has.

Where words do not tell, a text gets all headers, as it does where it does not compile without.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# All that `cuda_runtime.h` includes for kernels, but what every kernel needs.
_OPTIONAL = (
    "vector_functions.h",
    "crt/common_functions.h",
    "crt/math_functions.h",
    "crt/device_functions.hpp",
    "crt/device_double_functions.h",
    "device_atomic_functions.h",
    "sm_20_atomic_functions.h",
    "sm_32_atomic_functions.h",
    "sm_60_atomic_functions.h",
    "sm_20_intrinsics.h",
    "sm_30_intrinsics.h",
    "sm_32_intrinsics.h",
    "sm_61_intrinsics.h",
    "crt/sm_70_rt.h",
    "crt/sm_80_rt.h",
    "crt/sm_90_rt.h",
    "crt/sm_100_rt.h",
)
_MATHEMATICS = "__MATH_FUNCTIONS_H__"
_LITTLE_MATHEMATICS, _LITTLE = "GPULAB_MIN_MAX", frozenset(("min", "max", "fminf", "fmaxf"))  # see gpulab_min_max.h
# Comments, and quoted text, where none begins. What never ends matches, too: else each beginning is tried to the end.
_COMMENT = re.compile(r"""/\*.*?(?:\*/|\Z)|//[^\n]*|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(|\boperator\s+(new|delete)\b")
_NO_FUNCTION = re.compile(
    r"[A-Z_0-9]+|__attribute__|__has_include|__pragma|asm|defined|deprecated|elif|else|error|if|message|noexcept|return"
    r"|sizeof|throw|visibility|void|volatile|warning"
)
# What is ambiguous, overloaded or defined with all headers and may be something else without, instead of an error; what
# makes words out of others; and what only hosts call, or textures and surfaces have.
_UNTOLD = re.compile(
    r"\b(?:namespace|std)\b|__cpp_lib_|_GLIBCXX|__glibcxx|__USE_|##|%:%:|\b(?:cuda|tex|surf)[A-Z1-3]|\bCUDART_"
)
_JOINT = re.compile(r"\\[ \t\f\v\r]*\n")
_DIRECTIVE = re.compile(r"^[ \t\f\v\r]*(?:#|%:)[ \t\f\v]*(\w*)(.*)$", re.MULTILINE)
_HARMLESS = ("", "define", "undef", "pragma", "line", "error", "warning", "else", "endif")
_INCLUDED = re.compile(r"""[ \t]*(?:<([\w.]+)>|"([\w.]+)")""")
# What declares to kernels nothing that they have not without; with all headers, most of it comes in front of a file.
_OF_C = frozenset(
    form.format(name)
    for name in ("assert", "float", "limits", "math", "stddef", "stdint", "stdio", "stdlib", "string")
    for form in ("{}.h", "c{}")
)
_FOR_HOSTS = _OF_C | {"gpulab.cuh", "cuda_runtime.h", "device_launch_parameters.h"}
# Macros that are defined without headers, or in none of those that may be missing.
_SAME = re.compile(
    r"defined|__CUDA_ARCH__|__CUDACC__|__NVCC__|__cplusplus|NDEBUG|DEBUG"
    r"|(?=[A-Z]\w{1,60}\Z)(?:GPULAB_.*|.*_C?U?H|.*(?:BLOCK|THREAD|TILE|WARP).*)"
)


@dataclass(frozen=True)
class _Header:
    """One that may be left out.

    Attributes:
        guard: the macro that keeps it out.
        declared: the functions that it declares.
        called: those of others' that these call.
    """

    guard: str
    declared: frozenset[str]
    called: frozenset[str]


def needless(include: Path, text: str, headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the macros that keep out the headers of CUDA that a text can do without; None: it gets all headers.

    Args:
        include: the folder of CUDA's headers.
        text: what is compiled, behind the definitions of its macros.
        headers: the texts of others that it may include, by name.
    """
    text = "\n".join((*headers.values(), text))
    code = _COMMENT.sub(lambda found: found[1] or " ", _JOINT.sub("", text))
    known = _FOR_HOSTS.union(headers)
    optional, directives = _optional(include), _DIRECTIVE.findall(code)
    if not optional or _UNTOLD.search(code) or not all(_is_told(name, rest, known) for name, rest in directives):
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
    """Say whether our few lines will do; beside the C library's mathematics they would not compile."""
    called = {name for header in optional if header.guard == _MATHEMATICS for name in header.declared & words}
    return bool(called) and called <= _LITTLE and words.isdisjoint(("math", "cmath"))


def _is_told(name: str, operand: str, known: Collection[str]) -> bool:
    """Say whether a directive has the same effect with fewer headers."""
    if name == "include":
        return _included(operand) in known
    if name in ("if", "ifdef", "ifndef", "elif"):
        return all(map(_SAME.fullmatch, _WORD.findall(operand)))
    return name in _HARMLESS or name.isdigit()


def _defines_before_including(directives: Iterable[tuple[str, str]]) -> bool:
    """Say whether a header of C comes after a macro that it may define: with all headers, it would come before."""
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
    """Return the headers that may be left out; none where CUDA's headers are not in that folder, or are others."""
    try:
        return tuple(_read(include / name) for name in _OPTIONAL if (include / name).exists())
    except OSError:
        return ()


def _read(path: Path) -> _Header:
    declared, definitions = _functions(path), path.with_suffix(".hpp")
    if path == definitions:  # which defines some of those that its `.h` declares, by way of others
        called = declared
    else:
        called = _functions(definitions) - declared if definitions.exists() else frozenset()
    return _Header(f"__{path.name.upper().replace('.', '_')}__", declared, called)


def _functions(path: Path) -> frozenset[str]:
    """Return all that is declared, defined or called there."""
    text = _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    found = {name or operator for name, operator in _CALLED.findall(text)}
    return frozenset(name for name in found if not _NO_FUNCTION.fullmatch(name))
