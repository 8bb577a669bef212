"""The standard headers that NVRTC lacks: short ones of this package, or libcu++'s where more is needed.

nvcc takes them from the host compiler. Both give device code the same names; tests/devices/test_names.py checks that.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pytest_gpulab.devices.source.tokens import words_of

BUILTINS = "gpulab_builtins.h"
_STD = "gpulab_std.h"
# Headers without names for device code, except those that NVRTC has built in.
_EMPTY = (
    "alloca.h", "assert.h", "cassert", "cerrno", "chrono", "cinttypes", "climits", "cmath", "cstdbool", "cstddef",
    "cstdio", "cstdlib", "cstring", "ctime", "cuda_profiler_api.h", "cuda_runtime.h", "cuda_runtime_api.h",
    "device_launch_parameters.h", "errno.h", "fstream", "inttypes.h", "iomanip", "iostream", "iterator", "limits.h",
    "math.h", "memory.h", "new", "random", "stdbool.h", "stddef.h", "stdio.h", "stdlib.h", "string", "string.h",
    "time.h", "vector",
)  # fmt: skip
_FILES = {
    BUILTINS: "builtins", _STD: "std", "limits": "limits", "type_traits": "type_traits", "float.h": "float",
    "cfloat": "float", "stdint.h": "stdint", "cstdint": "stdint", "inttypes.h": "stdint", "cinttypes": "stdint",
}  # fmt: skip
_FROM_LIBCUXX = {
    "algorithm": ("algorithm", "clamp"),
    "array": ("array", "array get begin end size data"),
    "complex": ("complex", "complex"),
    "functional": (
        "functional",
        "plus minus multiplies divides modulus negate equal_to not_equal_to less greater less_equal greater_equal "
        "logical_and logical_or logical_not bit_and bit_or bit_xor",
    ),
    "numeric": ("numeric", "gcd lcm"),
    "optional": ("optional", "optional nullopt"),
    "tuple": ("tuple", "tuple get make_tuple tie"),
}
_IN_STD = {"cstdio": "printf", "cstring": "memcpy memset strlen", "cstdlib": "malloc free"}
_OF_LISTS = """#include <initializer_list>
namespace std {
template <typename T> __host__ __device__ constexpr T max(initializer_list<T> values)
{
    T largest = *values.begin();
    for (const T &value : values) largest = largest < value ? value : largest;
    return largest;
}
template <typename T> __host__ __device__ constexpr T min(initializer_list<T> values)
{
    T least = *values.begin();
    for (const T &value : values) least = value < least ? value : least;
    return least;
}
}  // namespace std
"""
_ASSERT = "#ifdef NDEBUG\n#undef assert\n#define assert(condition) ((void)0)\n#endif\n"
_CUB_FOLDERS = ("block", "warp", "thread")


def header_files(text: str, folders: Collection[Path]) -> dict[str, str]:
    """Return the headers that a text may include by name.

    Args:
        text: the compiled text.
        folders: the folders with CUDA's headers.
    """
    words = words_of(text)
    files = _standard_files() | {name: _of_libcuxx(name, words) for name in _FROM_LIBCUXX}
    return files | {"cub/cub.cuh": _cub(words, folders)} if "cub.cuh" in text else files


def before(text: str) -> tuple[str, ...]:
    """Return the headers that are included before a text, as nvcc does implicitly."""
    words = words_of(text)
    if "std" not in words:
        return (BUILTINS,)
    # only if needed: their constants would become variables of the module
    named = (header for header in ("limits", "type_traits") if not words.isdisjoint(_declared(header)))
    return (BUILTINS, _STD, *named)


@lru_cache(maxsize=2)
def _declared(header: str) -> frozenset[str]:
    found = re.findall(r"\bstruct (\w+)|\busing (\w+) =|\bbool (\w+) =", _standard_files()[header])
    return frozenset(name for names in found for name in names if name)


@lru_cache(maxsize=1)
def _standard_files() -> dict[str, str]:
    folder = resources.files("pytest_gpulab") / "include" / "standard"
    files = dict.fromkeys(_EMPTY, "") | {name: _into_std(names) for name, names in _IN_STD.items()}
    files |= {name: (folder / f"{stem}.cuh").read_text() for name, stem in _FILES.items()}
    files["cuda.h"] = "#pragma once\n#define CUDA_VERSION CUDART_VERSION\n"
    files |= dict.fromkeys(("assert.h", "cassert"), _ASSERT) | dict.fromkeys(
        ("utility", "initializer_list"), f"#include <{_STD}>\n"
    )
    return files


def _of_libcuxx(name: str, words: Collection[str]) -> str:
    """Return a header that takes its names from libcu++, if a text has them: libcu++ takes a second to compile."""
    origin, names = _FROM_LIBCUXX[name]
    is_used = "std" in words and any(each in words for each in names.split())
    uses = f"#include <cuda/std/{origin}>\n{_into_std(names, 'cuda::std')}" if is_used else ""
    return f"#pragma once\n#include <{_STD}>\n{uses}{_OF_LISTS if name == 'algorithm' else ''}"


def _into_std(names: str, origin: str = "") -> str:
    uses = " ".join(f"using {origin}::{name};" for name in names.split())
    return f"namespace std {{ {uses} }}\n"


def _cub(words: Collection[str], folders: Collection[Path]) -> str:
    """Return a `cub/cub.cuh` with only the collectives that a text names: all of them take seconds to compile."""
    lines = ["#pragma once\n"]
    for path in sorted(
        path for folder in folders for part in _CUB_FOLDERS for path in (folder / "cub" / part).glob("*.cuh")
    ):
        if "".join(word.capitalize() for word in path.stem.split("_")) in words:
            lines.append(f"#include <cub/{path.parent.name}/{path.name}>\n")
    return "".join(lines)
