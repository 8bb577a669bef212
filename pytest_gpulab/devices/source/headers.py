"""The headers that a file includes: for the compilers, only those with device code are left."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

from .declarations import Declaration
from .tokens import Token

_OWN_HEADER = "gpulab.cuh"
_OWN_MACROS = "GPULAB_"
# CUDA's headers for device code; kernels cannot call functions of other headers
_DEVICE_HEADERS = re.compile(
    r"gpulab\.cuh|cuda/.*|nv/.*|cub/.*|cooperative_groups(?:\.h|/.*)|cuda_(?:fp|bf)\d+\.(?:h|hpp)|cuda_(?:pipeline|awbarrier)\w*\.h"
    r"|mma\.h|curand_\w+\.h|curandDx\w*|cublasdx.*|math_constants\.h|math_functions\.h|device_functions\.h|vector_(?:types|functions)\.h"
    r"|(?:device|sm_\d+)_\w+\.h|cuComplex\.h|texture_\w+\.h|surface_\w+\.h|crt/.*"
)
STANDARD_HEADERS = frozenset(
    ("algorithm", "array", "assert.h", "cassert", "cfloat", "cinttypes", "climits", "cmath", "complex", "cstdbool",
     "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "float.h", "functional",
     "initializer_list", "inttypes.h", "limits",
     "limits.h", "math.h", "new", "numeric", "optional", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h",
     "string.h", "tuple", "type_traits", "utility")
)  # fmt: skip
# Headers of libstdc++ that include <cstdint>, and its types that are not built into our compilers
_WITH_STDINT = frozenset(
    ("atomic", "bitset", "chrono", "complex", "condition_variable", "execution", "filesystem", "fstream", "future",
     "iomanip", "ios", "iostream", "istream", "iterator", "locale", "memory", "mutex", "ostream", "random", "ratio",
     "regex", "shared_mutex", "sstream", "stdexcept", "streambuf", "string", "string_view", "system_error", "thread")
)  # fmt: skip
_STDINT = frozenset(("uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t", "intptr_t", "uintmax_t", "intmax_t"))
_NEVER_DEVICE = "device_launch_parameters.h"
_OF_HOSTS = re.compile(
    r"helper_\w+\.h|wb\.h|gputimer\.h|(?:thrust|sys)/.*|unistd\.h|omp\.h|mpi\.h|device_launch_parameters\.h"
    r"|cu(?:blas|fft|rand|sparse|solver|dnn)\w*\.h"
)
"""Headers without device code that programs include in quotes."""


@lru_cache(maxsize=1)
def own_header() -> str:
    """Return the text of `gpulab.cuh`."""
    return (resources.files("pytest_gpulab") / "include" / _OWN_HEADER).read_text(encoding="utf-8")


def header_of(directive: Token) -> str:
    """Return the name that a directive includes."""
    return "".join(token.text for token in directive.within[1:]).strip('<>"')


def instead_of(directive: Token, kept: Iterable[Declaration], text: str) -> str:
    """Return an include to put in place of one of a header without device code; empty if device code needs none.

    Device code may use the types of `cstdint`, which headers of the host include, or test `cuda.h`'s CUDA_VERSION.
    """
    if header_of(directive) == "cuda.h":
        return "#include <cuda.h>" if "CUDA_VERSION" in text else ""
    has_types = header_of(directive) in _WITH_STDINT and any(each.words & _STDINT for each in kept)
    return "#include <cstdint>" if has_types else ""


def is_unread(directive: Token, given: Iterable[str], has_host_code: bool) -> bool:
    """Return whether a directive includes a header that device code cannot use, so that it is left out.

    Absolute and relative paths are left to the compiler. So are quoted names of unknown files, which the compiler
    reports as missing: always if they end in `.cuh` or `.cu`, others if the file has no host code that may need them.
    """
    operand = directive.within[1:2]
    if directive.text != "include" or not operand or not (operand[0].text == "<" or operand[0].kind == "string"):
        return False
    name = header_of(directive)
    if name in given or name == _OWN_HEADER or name.startswith(("/", "~", ".")) or ".." in name:
        return False
    if operand[0].kind == "string" and not _OF_HOSTS.fullmatch(name):
        return has_host_code and not name.endswith((".cuh", ".cu"))
    return name not in STANDARD_HEADERS and (name == _NEVER_DEVICE or not _DEVICE_HEADERS.fullmatch(name))


def prelude(text: str, directives: Iterable[Token]) -> str:
    """Return the include of `gpulab.cuh` if a file uses its macros, but does not include it; else nothing."""
    is_included = any(token.text == "include" and header_of(token) == _OWN_HEADER for token in directives)
    return "" if is_included or _OWN_MACROS not in text else f"#include <{_OWN_HEADER}>\n"
