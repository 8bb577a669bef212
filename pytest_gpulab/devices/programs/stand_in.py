"""The runtime library's stand-in: C++ that passes each call to the simulated GPU; compiled once and cached."""

import ctypes
import re
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
_VERSIONED = re.compile(r"# *define cu[A-Z]\w+ +(?:__CUDA_API_PT(?:DS|SZ)\()?(cu[A-Z]\w+_v\d)\b")
_PER_THREAD = re.compile(r"# *define (cuda\w+) +__CUDART_API_PT(DS|SZ)\(\1\)")
_JUMPS = """
#ifdef __x86_64__
#define SAME(name, as) __asm__(".text\\n.globl " #name "\\n" #name ": jmp " #as);
#else
#define SAME(name, as) __asm__(".text\\n.globl " #name "\\n" #name ": b " #as);
#endif
SAME(__cudaLaunchKernel_ptsz, __cudaLaunchKernel)
"""
_HEADERS = ("cuda_runtime_api.h", "cuda.h")
_WRAPPED = ("cuda_runtime.h", "cuda_runtime_api.h", "builtin_types.h")  # the last is what nvcc's own code includes
_EARLIER = "earlier_cuda.h"
_LIBRARIES = ("libcudart.a", "libcuda.a")  # nvcc links device code (-rdc=true) only with a runtime library
_HALVES = ("one.cpp", "two.cpp")  # compiled at the same time
_PROPERTIES = re.compile(r"(struct __device_builtin__ cudaDeviceProp\b.*?\bint +reserved\[)(\d+)(\];)", re.DOTALL)
_REMOVED = (
    "clockRate", "deviceOverlap", "kernelExecTimeoutEnabled", "computeMode", "maxTexture1DLinear", "memoryClockRate",
    "singleToDoublePrecisionPerfRatio", "cooperativeMultiDeviceLaunch",
)  # fmt: skip
"""Members of `cudaDeviceProp` in CUDA 12 that CUDA 13 lacks: its release notes, "Removed Fields"."""


@dataclass(frozen=True)
class StandIn:
    """The stand-in, compiled: objects to link, headers to find before CUDA's own, and empty libraries for CUDA's."""

    objects: tuple[Path, ...]
    headers: Path
    library: Path


def stand_in(toolchain: Toolchain, include: Path) -> StandIn:
    """Return the stand-in, compiled if the cache has none, or raise DeviceUnavailable if it does not compile here."""
    sources = sorted(SOURCES.iterdir())

    def produce(folder: Path) -> Iterable[Path]:
        (folder / "errors.inc").write_text(
            "".join(f'{{{c}, "{name}", "{text}"}},\n' for c, name, text in error_texts()), encoding="utf-8"
        )
        units = [f'#include "{path.name}"\n' for path in sources if path.suffix == ".cpp"]
        for name, half in zip(_HALVES, (units[::2], units[1::2]), strict=True):
            (folder / name).write_text("".join(half), encoding="utf-8")
        (folder / "missing.c").write_text(_stubs(include, sources), encoding="utf-8")
        (folder / "nothing.c").write_text("", encoding="utf-8")
        _write_headers(folder / "include", include)
        options = (f"-I{folder}", f"-I{SOURCES}", f"-I{folder / 'include'}", f"-I{include}")
        c = ("-xc", "-w", "-fPIC", "-c")
        jobs = {**dict.fromkeys(_HALVES, (*OPTIONS, *options)), "missing.c": c, "nothing.c": c}
        with ThreadPoolExecutor(len(_HALVES)) as pool:  # the first run of a program waits for it
            list(pool.map(lambda name: _compile(toolchain, folder, name, *jobs[name]), jobs))
        for name in _LIBRARIES:  # nvlink warns of an archive without members
            subprocess.run(["ar", "rcs", str(folder / name), str(folder / "nothing.o")], check=True)
        return (Path(__file__), *sources, *(include / name for name in (*_HEADERS, "driver_types.h")))

    names = (path.name for path in sources)
    folder = built(("stand-in", *toolchain.identity, str(SOURCES), *names, str(include), *OPTIONS), produce)
    objects = [*(name.replace(".cpp", ".o") for name in _HALVES), "missing.o"]
    return StandIn(tuple(folder / name for name in objects), folder / "include", folder)


def _write_headers(folder: Path, include: Path) -> None:
    """Write headers that include CUDA's own and add what programs for CUDA 12 use; none if this is CUDA 12."""
    folder.mkdir()
    types = _text(include / "driver_types.h")
    properties = _PROPERTIES.search(types)
    if properties is None or "clockRate" in properties[1]:
        return
    start, left, end = properties.groups()
    declared = f"{start.removesuffix('reserved[')}{', '.join(_REMOVED)}, reserved[{int(left) - len(_REMOVED)}{end}"
    (folder / "earlier_types.h").write_text(types.replace(properties[0], declared), encoding="utf-8")
    (folder / _EARLIER).write_text(_text(SOURCES / _EARLIER), encoding="utf-8")
    for name in _WRAPPED:
        functions = f'#include "{_EARLIER}"\n' if name != "builtin_types.h" else ""
        (folder / name).write_text(f'#include "earlier_types.h"\n#include_next <{name}>\n{functions}', encoding="utf-8")


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
    """Return C code that defines every other function of CUDA's headers: it ends the program with its name.

    With `--default-stream=per-thread` functions have a suffix; here they are the same.
    """
    texts = [_text(include / header) for header in _HEADERS]
    declared = {name for text in texts for pattern in (_DECLARED, _VERSIONED) for name in pattern.findall(text)}
    defined = {name for path in sources for name in _DEFINED.findall(_text(path))}
    suffixed = _PER_THREAD.findall(texts[0])
    same = {f"{name}_pt{kind.lower()}": name for name, kind in suffixed if name in declared | defined}
    lines = ["void gpulab_missing(const char *, void *);", _JUMPS]
    lines += [f"SAME({name}, {of})" for name, of in same.items()]
    for name in sorted(declared - defined - same.keys()):
        shown = name.partition("_v")[0]
        body = f'gpulab_missing("{shown}", __builtin_return_address(0));'
        lines.append(f"__attribute__((weak)) void {name}(void) {{ {body} }}")
    return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
