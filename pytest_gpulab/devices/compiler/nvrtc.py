"""Compile CUDA C++ with NVRTC to PTX or machine code, without GPU, driver or toolkit.

This module makes the requests. NVRTC runs in this process, or in a compiler process (`compiler_process`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, KernelResources
from pytest_gpulab.devices.source.host_code import DeviceText, device_text, line_one, shown

from .nvrtc_headers import before, header_files
from .nvrtc_program import Answer, Output, Request, compiled

Run = Callable[[Request], Answer]
# NVRTC's cache would start the GPU's driver for every compilation, and the driver serves one process at a time.
_NO_CACHE = "--no-cache"
_LINES = "--generate-line-info"
_TRIAL = "#include <gpulab.cuh>\n__global__ void trial(int *p) { *p = 1; }\n"
_SAID_CHARS = 300  # the message becomes part of one line
_BUILT_IN_HEADERS = ("gpulab.cuh",)
# As with nvcc: functions without a mark are device code, since host code was blanked, and 128-bit integers exist.
_AS_NVCC = ("--device-as-default-execution-space", "--device-int128")

# Macros of nvcc and its host compiler that conditions of a file may test; defined only if the file names them, because
# CUDA's headers test them, too.
_PLATFORM = {
    "__NVCC__": "1", "__GNUC__": "12", "__GNUG__": "12", "__linux__": "1", "__unix__": "1", "__x86_64__": "1",
    "_GNU_SOURCE": "1", "__CHAR_BIT__": "8", "__SIZEOF_INT128__": "16", "__SIZEOF_POINTER__": "8",
    "__INT_MAX__": "0x7fffffff",
}  # fmt: skip


@lru_cache(maxsize=1)
def version() -> str:
    """Return NVRTC's version, such as `13.5`.

    Raises:
        DeviceUnavailable: NVRTC or the package with its headers is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
        include_folders()
    except Exception as error:  # the bindings raise their own types if the library cannot be loaded
        from pytest_gpulab.devices.system.packages import why_not_imported

        raise DeviceUnavailable(why_not_imported(error)) from error
    return f"{major}.{minor}"


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
    return {name: (folder / name).read_text() for name in _BUILT_IN_HEADERS}


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
        source: the CUDA C++ text.
        filename: its name in diagnostics and in the line table.
        architecture: such as `compute_90`.
        defines: macros and their values.
        headers: texts of further files that may be included, by name.
        run: the function that calls NVRTC.

    Returns:
        The PTX and the log (warnings).

    Raises:
        CompileError: the text does not compile; it holds the compiler's messages.
    """
    request = ptx_request(source, filename, architecture, defines, headers)
    ptx, log = _compile(run, request)
    if b"begin inline asm" in ptx:
        from pytest_gpulab.devices.source.assembly import check_assembly, may_hold_assembly

        if may_hold_assembly("\n".join((source, *(headers or {}).values()))):
            without_lines, _ = _compile(run, request._replace(options=[o for o in request.options if o != _LINES]))
            check_assembly(without_lines.decode(errors="replace"), shown(filename))
    _check_constants(device_text(source, headers or {}), shown(filename), request, run)
    return ptx.decode(errors="replace").strip(), log


def _check_constants(code: DeviceText, filename: str, request: Request, run: Run) -> None:
    """Raise CompileError if device code needs the address of an unmarked constant, which nvcc refuses."""
    if code.references:
        from pytest_gpulab.devices.source.host_constants import undefined_in_device_code

        raise undefined_in_device_code(filename, code.references)
    if code.host_constants:
        from pytest_gpulab.devices.source.host_constants import check_host_constants

        options = ["--device-debug" if option == _LINES else option for option in request.options]
        unoptimised, _ = _compile(run, request._replace(options=options))
        check_host_constants(unoptimised.decode(errors="replace"), filename, code.host_constants)


def ptx_request(
    source: str,
    filename: str,
    architecture: str,
    defines: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """Return the request of `compile_ptx` to NVRTC."""
    options = [f"--gpu-architecture={architecture}", _LINES]
    return _request(source, filename, options, defines, headers, "ptx")


@dataclass(frozen=True)
class MachineBinary:
    """Machine code of a module, a cubin with line information.

    Attributes:
        cubin: the machine code as the loader expects it.
        resources: registers, shared and local memory of each kernel, by symbol.
        frame_bytes: the stack frame of each kernel and each called function, by symbol.
    """

    cubin: bytes
    resources: Mapping[str, KernelResources]
    frame_bytes: Mapping[str, int]


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
        CompileError: the text does not compile; it holds the compiler's messages.
    """
    options = [f"--gpu-architecture={architecture}", "--generate-line-info", "--ptxas-options=-v"]
    cubin, log = _compile(run, _request(source, filename, options, defines, headers, "cubin"))
    return machine_binary(cubin, log)


def machine_binary(cubin: bytes, log: str) -> MachineBinary:
    """Return machine code with what its assembler, ptxas with the option `-v`, has reported."""
    return MachineBinary(cubin, _parse_usage(log), _parse_frames(log))


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


_FRAME = re.compile(r"Function properties for ([\w$]+)\s+(?:ptxas)?[ .]*(\d+) bytes stack frame")


def _parse_frames(log: str) -> dict[str, int]:
    """Read the stack frame of each function from ptxas's report."""
    return {name: int(nbytes) for name, nbytes in _FRAME.findall(log)}


def _parse_usage(log: str) -> dict[str, KernelResources]:
    """Read ptxas's report: per kernel an entry line, a stack line, and a line with registers and shared bytes."""
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
    given = _shipped_headers() | dict(headers or {})
    code = device_text(source, given)
    platform = {name: value for name, value in _PLATFORM.items() if name in code.text}
    text, macros = code.text, _macros(filename, platform | dict(defines or {}), code.prelude)
    read = "\n".join((text, *(headers or {}).values()))
    options = [*options, "--std=c++17", _NO_CACHE, *_AS_NVCC]
    options += [f"--pre-include={name}" for name in before(read)]
    options += [f"--include-path={folder}" for folder in include_folders()]
    files = header_files(read, include_folders()) | given
    return Request(text, shown(filename), files, options, output, macros)


def _compile(run: Run, request: Request) -> tuple[bytes, str]:
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

    Raises:
        DeviceUnavailable: it does not compile, for example because a part of NVRTC is missing.
    """
    try:
        output, log = run(request._replace(text=_TRIAL, filename="trial.cu", macros=""))
    except CompileError as error:
        output, log = None, error.diagnostics
    if output is None:
        raise DeviceUnavailable(f"NVRTC does not work here: {' '.join(log.split())[:_SAID_CHARS]}")


def _macros(filename: str, defines: Mapping[str, str], prelude: str) -> str:
    """Return the text before a source; on the command line, macros would also change NVRTC's own headers."""
    before = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + prelude
    return before + line_one(filename) if before else ""
