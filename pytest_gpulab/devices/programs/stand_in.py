"""The runtime library's stand-in: C++ that passes each call to the simulated GPU; compiled once and cached."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from pytest_gpulab.devices.errors import DeviceUnavailable

from .build_cache import built
from .toolchain import Toolchain

SOURCES = Path(__file__).parent / "runtime"
OPTIONS = (
    "-std=c++17", "-O1", "-fPIC", "-c", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wno-frame-address",
)  # fmt: skip
_MOST_CODES = 1000
_UNKNOWN = "unrecognized error code"
_DECLARED = re.compile(r"\b(cu(?:da)?[A-Z]\w+)\s*\(")
_DEFINED = re.compile(r"\b(_*cuda[A-Z]\w+)\(")
_HEADERS = ("cuda_runtime_api.h", "cuda.h")


def stand_in(toolchain: Toolchain, include: Path) -> tuple[Path, ...]:
    """Return the object files to link a program with.

    Args:
        toolchain: the compilers.
        include: the folder of CUDA's headers.

    Raises:
        DeviceUnavailable: it does not compile here.
    """
    sources = sorted(SOURCES.iterdir())

    def produce(folder: Path) -> Iterable[Path]:
        (folder / "errors.inc").write_text(
            "".join(f'{{{c}, "{name}", "{text}"}},\n' for c, name, text in error_texts())
        )
        units = [f'#include "{path.name}"\n' for path in sources if path.suffix == ".cpp"]
        (folder / "all.cpp").write_text("".join(units))
        (folder / "missing.c").write_text(_stubs(include, sources))
        options = (f"-I{folder}", f"-I{SOURCES}", f"-I{include}")
        _compile(toolchain, folder, "all.cpp", *OPTIONS, *options)
        _compile(toolchain, folder, "missing.c", "-xc", "-w", "-O1", "-fPIC", "-c")
        return (*sources, *(include / name for name in _HEADERS))

    folder = built(("stand-in", *toolchain.identity, str(SOURCES), str(include), *OPTIONS), produce)
    return folder / "all.o", folder / "missing.o"


def _compile(toolchain: Toolchain, folder: Path, name: str, *options: str) -> None:
    output = folder / f"{Path(name).stem}.o"
    command = [str(toolchain.host_compiler), *options, str(folder / name), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise DeviceUnavailable(f"the runtime library's stand-in does not compile with {command[0]}: {first}")


def error_texts() -> Iterator[tuple[int, str, str]]:
    """Yield the error codes with names and descriptions, as NVIDIA's own runtime library has them."""
    nvidia = import_module("nvidia")
    found = (path for root in nvidia.__path__ for path in sorted(Path(root).glob("*/lib/libcudart.so.*")))
    path = next(found, None)
    if path is None:
        raise DeviceUnavailable("the package nvidia-cuda-runtime is incomplete: it has no libcudart.so")
    library = ctypes.CDLL(str(path))
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    for code in range(_MOST_CODES):
        name, text = library.cudaGetErrorName(code).decode(), library.cudaGetErrorString(code).decode()
        if name != _UNKNOWN:
            yield code, name, text


def _stubs(include: Path, sources: Iterable[Path]) -> str:
    """Return C code that defines every other function of CUDA's headers: it ends the program with its name."""
    declared = {name for header in _HEADERS for name in _DECLARED.findall(_text(include / header))}
    defined = {name for path in sources for name in _DEFINED.findall(_text(path))}
    lines = ["void gpulab_missing(const char *);"]
    for name in sorted(declared - defined):
        lines.append(f'__attribute__((weak)) void {name}(void) {{ gpulab_missing("{name}"); }}')
    return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
