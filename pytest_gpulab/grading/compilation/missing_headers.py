"""CUDA headers that the machine lacks, found without trust in the submission, which can forge any message."""

import re
from collections.abc import Callable, Iterable

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.source.host_code import STANDARD_HEADERS
from pytest_gpulab.devices.source.tokens import words_of

_CANNOT_OPEN = re.compile(
    r'^[^\n(]+\(\d+\): [a-z ]*error[^:\n]*: (?:cannot|could not) open source file "(?P<nvidia>[^"\n]+)"'
    r"|^[^\n]*: fatal error: (?P<gcc>[^:\n]+): No such file or directory",
    re.MULTILINE,
)
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]', re.MULTILINE)
# Headers of a CUDA installation that device code includes. If one is missing, the submission is not to blame.
# A name that no CUDA installation has must not be here: a submission that includes it would not be graded.
_CUDAS = re.compile(
    r"nv/target|cooperative_groups(?:/(?:memcpy_async|reduce|scan))?\.h|mma\.h|curand_kernel\.h|math_constants\.h"
    r"|cuda_(?:fp16|bf16|fp8|fp6|fp4|pipeline|pipeline_primitives|awbarrier|awbarrier_primitives)\.h"
    r"|cuda/(?:atomic|barrier|bit|cmath|functional|latch|mdspan|numeric|pipeline|ptx|semaphore|utility|warp)"
    r"|cuda/std/(?:algorithm|array|atomic|barrier|bit|bitset|cassert|cfloat|chrono|climits|cmath|complex|concepts|cstddef"
    r"|cstdint|cstdlib|cstring|ctime|expected|functional|initializer_list|iterator|latch|limits|mdspan|memory|numbers"
    r"|numeric|optional|ranges|ratio|semaphore|span|string_view|tuple|type_traits|utility|variant|version)"
    r"|cub/(?:cub|warp/warp_(?:reduce|scan)|block/block_(?:reduce|scan|load|store|radix_sort|exchange|histogram))\.cuh"
)
_TRIAL = "__global__ void trial(int *p) { *p = 1; }\n"


def cudas_missing_header(messages: str, texts: Iterable[str], compiled: Callable[[str], object]) -> str | None:
    """Return the header that the CUDA installation lacks, or None if the file itself is the cause.

    A file can forge any message, for instance by a static_assert. So each header is compiled with a correct kernel. A
    macro there holds the words of `texts`, because without a GPU some headers contain only the names that a text
    uses.
    """
    texts = tuple(texts)
    names = dict.fromkeys(name for text in texts for name in _INCLUDED.findall(text) if _is_sound(name))
    if not names or not _CANNOT_OPEN.search(messages):
        return None
    try:
        words = " ".join(sorted(frozenset[str]().union(*map(words_of, texts))))
        compiled("".join(f"#include <{name}>\n" for name in names) + f"#define GPULAB_WORDS {words}\n{_TRIAL}")
    except CompileError as error:
        found = _CANNOT_OPEN.search(error.diagnostics)
        return (found["nvidia"] or found["gcc"]) if found else None
    return None


def _is_sound(header: str) -> bool:
    """Return True if a complete installation has the header; with NVRTC, the C++ library's headers need CUDA's own."""
    return header in STANDARD_HEADERS or _CUDAS.fullmatch(header) is not None
