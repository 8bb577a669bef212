"""Compile CUDA C++ with NVRTC to PTX, without GPU, driver or toolkit; `machine_code` goes further.

This module makes the requests. NVRTC runs in this process, or in a compiler process (`compiler_process`).

NVRTC lacks the standard headers, which nvcc takes from the host compiler: a request has short ones of this package, or
libcu++'s where more is needed. Both give device code the same names; tests/devices/test_names.py checks that.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, Texts
from pytest_gpulab.devices.source.host_code import DeviceText, device_text, line_one, shown
from pytest_gpulab.devices.source.tokens import in_ascii, words_of

from . import nvrtc_program
from .nvrtc_program import BETWEEN, Answer, Output, Request, compiled

Run = Callable[[Request], Answer]
# NVRTC's cache would start the GPU's driver for every compilation, and the driver serves one process at a time.
_NO_CACHE = "--no-cache"
LINES = "--generate-line-info"
USAGE = "--ptxas-options=-v"  # the assembler reports registers and memory
_TRIAL = "#include <gpulab.cuh>\n__global__ void trial(int *p) { *p = 1; }\n"
_SAID_CHARS = 300  # the message becomes part of one line
_BUILT_IN_HEADERS = ("gpulab.cuh",)
# As with nvcc: functions without a mark are device code, since host code was blanked, and 128-bit integers exist.
# The macro unrolls templates of libcu++. With libcu++'s value for NVRTC, 16, any of its headers takes 1.6 s longer.
_AS_NVCC = (
    "--device-as-default-execution-space", "--device-int128", "--define-macro=_CCCL_META_UNROLL_LIMIT=10",
)  # fmt: skip

# Macros of nvcc and its host compiler that conditions of a file may test; defined only if the file names them, because
# CUDA's headers test them, too. nvcc ignores `register`, which C++17 no longer has.
_PLATFORM = {
    "register": "",
    "__NVCC__": "1", "__GNUC__": "12", "__GNUG__": "12", "__linux__": "1", "__unix__": "1", "__x86_64__": "1",
    "_GNU_SOURCE": "1", "__CHAR_BIT__": "8", "__SIZEOF_INT128__": "16", "__SIZEOF_POINTER__": "8",
    "__INT_MAX__": "0x7fffffff",
}  # fmt: skip

_BUILTINS = "gpulab_builtins.h"
_STD = "gpulab_std.h"
# Headers without names for device code, except those that NVRTC has built in.
_EMPTY = (
    "alloca.h", "assert.h", "cassert", "cerrno", "chrono", "cinttypes", "climits", "cmath", "cstdbool", "cstddef",
    "cstdio", "cstdlib", "cstring", "ctime", "cuda_profiler_api.h", "cuda_runtime.h", "cuda_runtime_api.h",
    "device_launch_parameters.h", "errno.h", "fstream", "inttypes.h", "iomanip", "iostream", "limits.h",
    "math.h", "memory.h", "new", "random", "stdbool.h", "stddef.h", "stdio.h", "stdlib.h", "string", "string.h",
    "time.h", "vector",
)  # fmt: skip
_FILES = {
    _BUILTINS: "builtins", _STD: "std", "limits": "limits", "type_traits": "type_traits", "float.h": "float",
    "cfloat": "float", "stdint.h": "stdint", "cstdint": "stdint", "inttypes.h": "stdint", "cinttypes": "stdint",
}  # fmt: skip
_FROM_LIBCUXX = {
    "algorithm": ("algorithm", "clamp max_element min_element minmax"),
    "array": ("array", "array get begin end size data"),
    "complex": ("complex", "complex"),
    "functional": (
        "functional",
        "plus minus multiplies divides modulus negate equal_to not_equal_to less greater less_equal greater_equal "
        "logical_and logical_or logical_not bit_and bit_or bit_xor",
    ),
    "iterator": ("iterator", "begin end size data"),
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
_INCLUDED = re.compile(r'#[ \t]*include[ \t]*[<"]([^>"\n]+)')
# These take 0.5 to 1.2 s, the assembler 0.1 s. Other headers take no longer than the assembler.
_SLOW = re.compile(r'#[ \t]*include[ \t]*[<"](?:cooperative_groups|cub/|cuda/)')
_ASSEMBLER = re.compile(r"^ptxas\b", re.MULTILINE)


@lru_cache(maxsize=1)
def version() -> str:
    """Return NVRTC's version, such as `13.5`; raise DeviceUnavailable if it or its headers' package is missing."""
    try:
        include_folders()
        return nvrtc_program.version()
    except Exception as error:  # NVIDIA's package raises its own types if it does not find the library
        from pytest_gpulab.devices.system.packages import why_not_imported

        raise DeviceUnavailable(why_not_imported(error)) from error


@lru_cache(maxsize=1)
def include_folders() -> tuple[Path, ...]:
    """Return the folders with the toolkit's headers, as the wheels install them."""
    import nvidia

    found = []
    for root in (Path(folder).resolve() for folder in nvidia.__path__):
        for header in ("cuda_runtime.h", "crt/host_defines.h", "cuda/std/version", "nv/target"):
            for path in (*root.glob(f"*/include/{header}"), *root.glob(f"*/include/cccl/{header}")):
                folder = path.parents[header.count("/")]
                if folder not in found:
                    found.append(folder)
    return tuple(found)


@lru_cache(maxsize=1)
def _shipped_headers() -> dict[str, str]:
    folder = resources.files("pytest_gpulab") / "include"
    return {name: (folder / name).read_text(encoding="utf-8") for name in _BUILT_IN_HEADERS}


def compile_ptx(
    source: str, filename: str, architecture: str, defines: Texts = None, headers: Texts = None, run: Run = compiled
) -> tuple[str, str]:
    """Compile CUDA C++ for an architecture such as `compute_90`; return the PTX, with line information, and warnings.

    `filename` is the text's name in diagnostics and in the line table. `defines` are macros and their values, `headers`
    texts of further files that may be included, by name. `run` calls NVRTC. Raises CompileError with the compiler's
    messages if the text does not compile.
    """
    asked = ptx_request(source, filename, architecture, defines, headers)
    ptx, log = output_of(run, asked)
    if b"begin inline asm" in ptx:
        from pytest_gpulab.devices.source.assembly import check_assembly, may_hold_assembly

        if may_hold_assembly("\n".join((source, *(headers or {}).values()))):
            without_lines, _ = output_of(run, asked._replace(options=[o for o in asked.options if o != LINES]))
            check_assembly(without_lines.decode(errors="replace"), shown(filename))
    code = device_text(source, headers or {})
    if code.kernel_calls:
        from pytest_gpulab.devices.source.kernel_calls import CALLED

        raise CompileError("\n\n".join(f"{shown(filename)}({line}): error: {CALLED}" for line in code.kernel_calls))
    _check_constants(code, shown(filename), asked, run)
    return ptx.decode(errors="replace").strip(), log


def _check_constants(code: DeviceText, filename: str, request: Request, run: Run) -> None:
    """Raise CompileError if device code needs the address of an unmarked constant, which nvcc refuses."""
    if code.references:
        from pytest_gpulab.devices.source.host_constants import undefined_in_device_code

        raise undefined_in_device_code(filename, code.references)
    if code.host_constants:
        from pytest_gpulab.devices.source.host_constants import check_host_constants

        options = ["--device-debug" if option == LINES else option for option in request.options]
        unoptimised, _ = output_of(run, request._replace(options=options))
        check_host_constants(unoptimised.decode(errors="replace"), filename, code.host_constants)


def ptx_request(source: str, filename: str, architecture: str, defines: Texts = None, headers: Texts = None) -> Request:
    """Return the request of `compile_ptx` to NVRTC."""
    options = [f"--gpu-architecture={architecture}", LINES]
    return request_of(source, filename, options, defines, headers, "ptx")


def request_of(
    source: str, filename: str, options: list[str], defines: Texts, headers: Texts, output: Output
) -> Request:
    """Return a request to NVRTC; see `compile_ptx`."""
    given = _shipped_headers() | dict(headers or {})
    code = device_text(source, given)
    platform = {name: value for name, value in _PLATFORM.items() if name in code.text}
    text, macros = in_ascii(code.text), _macros(filename, platform | dict(defines or {}), code.prelude)
    read = "\n".join((text, *(headers or {}).values()))
    options = [*options, "--std=c++17", _NO_CACHE, *_AS_NVCC]
    options += [f"--pre-include={name}" for name in _included_before(read)]
    options += [f"--include-path={folder}" for folder in include_folders()]
    files = _header_files(read, include_folders()) | given
    return Request(text, shown(filename), files, options, output, macros)


def combined(request: Request) -> Request:
    """Return the request for PTX and machine code in one compilation, if machine code is worth it; else the request.

    The simulated GPU often needs machine code of one variant of a text only. But reading libcu++'s headers takes longer
    than the assembler, and inline assembly always needs it.
    """
    within = (request.files.get(name, "") for name in _INCLUDED.findall(request.text))
    is_worth_it = "asm" in request.text or any(map(_SLOW.search, (request.text, *within)))
    if request.output != "ptx" or LINES not in request.options or not is_worth_it:
        return request
    virtual, lines, *rest = request.options
    return request._replace(output="both", options=[virtual.replace("compute", "sm"), lines, USAGE, *rest])


class CombinedRun:
    """NVRTC for one module: machine code may come with the PTX; see `combined`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._machine_code: tuple[Request, Answer] | None = None

    def __call__(self, request: Request) -> Answer:
        """Return the answer to a request."""
        if self._machine_code is not None and self._machine_code[0] == request:
            return self._machine_code[1]
        both = combined(request)
        if both is request:
            return self._run(request)
        output, log = self._run(both)
        by_assembler = _ASSEMBLER.search(log)
        if output is None:  # a text that only the assembler refuses has PTX, which shows the reason
            return self._run(request) if by_assembler else Answer(None, log)
        ptx, _, cubin = output.partition(BETWEEN)
        self._machine_code = both._replace(output="cubin"), Answer(cubin, log)
        return Answer(ptx, log[: by_assembler.start()].rstrip() if by_assembler else log)


def output_of(run: Run, request: Request) -> tuple[bytes, str]:
    """Return the output of a request, and the log; raise CompileError, or DeviceUnavailable if none compiles."""
    try:
        output, log = run(request)
    except CompileError:  # it reached a limit or crashed
        _try(run, request)
        raise
    if output is None:
        _try(run, request)
        from .static_limits import with_plain_words

        raise CompileError(with_plain_words(log, request.filename))
    return output, log


def _try(run: Run, request: Request) -> None:
    """Compile a correct kernel, because messages do not distinguish an error of the text from one of the machine.

    Raises DeviceUnavailable if it does not compile, for example because a part of NVRTC is missing.
    """
    try:
        output, log = run(request._replace(text=_TRIAL, filename="trial.cu", macros=""))
    except CompileError as error:
        output, log = None, error.diagnostics
    if output is None:
        raise DeviceUnavailable(f"NVRTC does not work here: {' '.join(log.split())[:_SAID_CHARS]}")


def _macros(filename: str, defines: Mapping[str, str], prelude: str) -> str:
    """Return the text before a source; on the command line, macros would also change NVRTC's own headers."""
    text = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + prelude
    return text + line_one(filename) if text else ""


def _header_files(text: str, folders: Collection[Path]) -> dict[str, str]:
    """Return the headers in the folders of CUDA's headers that a text may include by name."""
    words = words_of(text)
    files = _standard_files() | {name: _of_libcuxx(name, words) for name in _FROM_LIBCUXX}
    return files | {"cub/cub.cuh": _cub(words, folders)} if "cub.cuh" in text else files


def _included_before(text: str) -> tuple[str, ...]:
    """Return the headers that are included before a text, as nvcc does implicitly."""
    words = words_of(text)
    if "std" not in words:
        return (_BUILTINS,)
    # only if needed: their constants would become variables of the module
    named = (header for header in ("limits", "type_traits") if not words.isdisjoint(_declared(header)))
    return (_BUILTINS, _STD, *named)


@lru_cache(maxsize=2)
def _declared(header: str) -> frozenset[str]:
    found = re.findall(r"(?:\bstruct |\busing (?=\w+ =)|T &&)(\w+)", _standard_files()[header])
    return frozenset(f"{name}{suffix}" for name in found for suffix in ("", "_v", "_t"))


@lru_cache(maxsize=1)
def _standard_files() -> dict[str, str]:
    folder = resources.files("pytest_gpulab") / "include" / "standard"
    files = dict.fromkeys(_EMPTY, "") | {name: _into_std(names) for name, names in _IN_STD.items()}
    files |= {name: (folder / f"{stem}.cuh").read_text(encoding="utf-8") for name, stem in _FILES.items()}
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
