"""Compile CUDA C++ with NVRTC: to PTX, or to machine code. Needs no GPU, driver or toolkit.

Here is what NVRTC is told. It is called in this process, or in one of its own (`compiler_process`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pytest_gpulab.devices.filenames import line_one, shown
from pytest_gpulab.devices.nvrtc_program import Answer, Output, Request, compiled
from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, KernelResources
from pytest_gpulab.devices.static_limits import with_plain_words

Run = Callable[[Request], Answer]
MISSING = (
    "NVRTC, the CUDA compiler library, is not installed: python -m pip install cuda-bindings nvidia-cuda-nvrtc "
    "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl (NVIDIA offers them for Linux and Windows, not for macOS)"
)
# standard headers that host code includes; NVRTC knows what device code may use of them by itself
_PLAIN = ("stdio", "assert", "math", "stdlib", "string", "limits", "float")
_STUBS = dict.fromkeys([f"{n}.h" for n in _PLAIN] + [f"c{n}" for n in _PLAIN] + ["iostream"], "")
_STUBS["device_launch_parameters.h"] = ""
# headers that only host code can use: harmless, and often left over
_STUBS |= dict.fromkeys(("algorithm", "chrono", "ctime", "fstream", "iomanip", "random", "string", "vector"), "")
_STUBS["stddef.h"] = ""
_STUBS["stdint.h"] = _STUBS["cstdint"] = (
    "typedef signed char int8_t; typedef unsigned char uint8_t;"
    "typedef short int16_t; typedef unsigned short uint16_t;"
    "typedef int int32_t; typedef unsigned int uint32_t;"
    "typedef long long int64_t; typedef unsigned long long uint64_t;"
    "typedef unsigned long long uintptr_t; typedef long long intptr_t;\n"
)
_STUBS["limits.h"] = _STUBS["climits"] = (
    "#define INT_MAX 2147483647\n#define INT_MIN (-INT_MAX - 1)\n#define UINT_MAX 4294967295u\n#define CHAR_BIT 8\n"
    "#define LLONG_MAX 9223372036854775807ll\n#define LLONG_MIN (-LLONG_MAX - 1)\n"
)
_STUBS["float.h"] = _STUBS["cfloat"] = (
    "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n#define FLT_EPSILON 1.192092896e-7f\n"
    "#define DBL_MAX 1.7976931348623158e+308\n#define DBL_MIN 2.2250738585072014e-308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n"
)
_STUBS["assert.h"] = _STUBS["cassert"] = "#ifdef NDEBUG\n#undef assert\n#define assert(condition) ((void)0)\n#endif\n"
_STUBS["cstddef"] = "namespace std { using ::size_t; }\n"
_STUBS["cstdint"] += (
    "namespace std { using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t;"
    "using ::uint32_t; using ::int64_t; using ::uint64_t; using ::uintptr_t; using ::intptr_t; using ::size_t; }\n"
)
# To look into its cache NVRTC would start the GPU's driver for every translation, which serves one process at a time.
_NO_CACHE = "--no-cache"
# nvcc includes <math.h> by itself
_MATH_MACROS = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}
_BUILT_IN_HEADERS = ("gpulab.cuh",)
# shipped as files: what device code uses most of two headers that NVRTC lacks; libcu++'s take a second to compile
_STANDARD_HEADERS = ("limits", "type_traits")


@lru_cache(maxsize=1)
def version() -> str:
    """Return NVRTC's version, such as `13.5`.

    Raises:
        DeviceUnavailable: NVRTC is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the bindings raise their own types where the library cannot be loaded
        raise DeviceUnavailable(f"{MISSING} ({error})") from error
    return f"{major}.{minor}"


@lru_cache(maxsize=1)
def include_folders() -> tuple[Path, ...]:
    """Return the folders with the toolkit's headers, as the wheels install them."""
    import nvidia

    found = []
    for root in (Path(folder).resolve() for folder in nvidia.__path__):
        for header in ("cuda_runtime.h", "cuda/std/version", "nv/target"):
            for path in (*root.glob(f"*/include/{header}"), *root.glob(f"*/include/cccl/{header}")):
                folder = path.parents[header.count("/")]
                if folder not in found:
                    found.append(folder)
    return tuple(found)


@lru_cache(maxsize=1)
def _shipped_headers() -> dict[str, str]:
    folder = resources.files("pytest_gpulab") / "include"
    standard = {name: (folder / "standard" / f"{name}.cuh").read_text() for name in _STANDARD_HEADERS}
    return standard | {name: (folder / name).read_text() for name in _BUILT_IN_HEADERS}


def compile_ptx(
    source: str,
    filename: str,
    architecture: str,
    defines: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    run: Run = compiled,
) -> tuple[str, str]:
    """Compile to PTX with line information.

    Args:
        source: the text.
        filename: what diagnostics and the line table call it.
        architecture: such as `compute_90`.
        defines: macros.
        headers: further files that may be included, name to text.
        run: who calls NVRTC.

    Returns:
        The PTX and the log (warnings).

    Raises:
        CompileError: with the compiler's messages.
    """
    ptx, log = _compile(run, ptx_request(source, filename, architecture, defines, headers))
    return ptx.decode(errors="replace").strip(), log


def ptx_request(
    source: str,
    filename: str,
    architecture: str,
    defines: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """Return what `compile_ptx` asks of NVRTC."""
    options = [f"--gpu-architecture={architecture}", "--generate-line-info"]
    return _request(source, filename, options, defines, headers, "ptx")


@dataclass(frozen=True)
class MachineBinary:
    """Machine code of a module (a cubin with line information), and what each kernel needs, by symbol."""

    cubin: bytes
    resources: Mapping[str, KernelResources]


def compile_machine_code(
    source: str,
    filename: str,
    architecture: str,
    defines: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    run: Run = compiled,
) -> MachineBinary:
    """Compile to machine code for an architecture such as `sm_90`; see `compile_ptx` for the rest.

    Raises:
        CompileError: with the compiler's messages.
    """
    options = [f"--gpu-architecture={architecture}", "--generate-line-info", "--ptxas-options=-v"]
    cubin, log = _compile(run, _request(source, filename, options, defines, headers, "cubin"))
    return MachineBinary(cubin, _parse_usage(log))


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def _parse_usage(log: str) -> dict[str, KernelResources]:
    """Read ptxas's report: an entry line, a stack line and a line with registers and shared bytes for each kernel."""
    usage = {}
    name, stack = "", 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            name, stack = match[1], 0
        elif match := _STACK.search(line):
            stack = int(match[1])
        elif (match := _USED.search(line)) and name:
            shared = _SHARED.search(line)
            usage[name] = KernelResources(int(match[1]), int(shared[1]) if shared else 0, stack)
    return usage


def _request(
    source: str,
    filename: str,
    options: list[str],
    defines: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    output: Output,
) -> Request:
    macros = _macros(filename, defines or {})
    options = [*options, "--std=c++17", _NO_CACHE]
    options += [f"--define-macro={name}={value}" for name, value in _MATH_MACROS.items()]
    options += [f"--include-path={folder}" for folder in include_folders()]
    files = _STUBS | _shipped_headers() | dict(headers or {})
    return Request(source, shown(filename), files, options, output, macros)


def _compile(run: Run, request: Request) -> tuple[bytes, str]:
    output, log = run(request)
    if output is None:
        raise CompileError(with_plain_words(log, request.filename))
    return output, log


def _macros(filename: str, defines: Mapping[str, str]) -> str:
    """Return what goes before a source; on the command line macros would reach NVRTC's own headers, too."""
    if not defines:
        return ""
    return "".join(f"#define {name} {value}\n" for name, value in defines.items()) + line_one(filename)
