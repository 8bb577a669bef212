"""Build a whole CUDA program for the simulated GPU, or with NVIDIA's runtime library for a real one."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gpulab.devices.errors import CompileError, DeviceUnavailable

from .build_cache import built
from .stand_in import stand_in
from .toolchain import Toolchain

# In DWARF 5, addr2line of binutils 2.40 gives a file's first function the name of nvcc's intermediate file.
_FOR_SIMULATION = ("-no-compress", "-lineinfo", "-O1", "-Xcompiler=-g1,-gdwarf-4")
AS_GRADED = ("--expt-relaxed-constexpr", "-I", str(Path(__file__).parents[2] / "include"))  # finds gpulab.cuh
_MESSAGES = "messages.txt"  # warnings of a build, which each run shows
_COMPILED_ONLY = ("-dc", "--device-c")
_SPECIAL_FUNCTION = re.compile(
    r"(?:laguerre|legendre|\bhermite|ellint_[123]|\b(?:cyl|sph)_\w+|\bbeta|\bexpint|riemann_zeta|hyperg|\bairy_[ab]i)[fl]?\b"
)
_HEADERS = (".h", ".hh", ".hpp", ".cuh")
_DEPENDENCY = re.compile(r"(?:\\.|[^\s\\])+")
_NAMED = (
    re.compile(r"fatal error: ([\w./\\+-]+): No such file"),
    re.compile(r"undefined reference to `([\w:]+)"),
    re.compile(r"cannot find -l:?(?:lib)?([\w.+-]+)"),
)
_OF_NVIDIA = {
    "cublas": "cuBLAS", "cufft": "cuFFT", "curand": "cuRAND", "cusparse": "cuSPARSE", "cusolver": "cuSOLVER",
    "cudnn": "cuDNN", "nvrtc": "NVRTC", "npp": "NPP", "nccl": "NCCL", "nvml": "NVML", "cutensor": "cuTENSOR",
    "nvidia-ml": "NVML", "nvjpeg": "nvJPEG", "nvshmem": "NVSHMEM", "cupti": "CUPTI",
}  # fmt: skip
_OF_OTHERS = {
    "mpi": "MPI", "cutlass": "CUTLASS", "nvtoolsext": "NVTX 2", "gl/": "OpenGL", "glut": "GLUT", "gl/freeglut": "GLUT",
    "glfw": "GLFW", "glew": "GLEW", "glad": "GLAD", "vulkan": "Vulkan", "egl": "EGL", "x11/": "X11", "sdl": "SDL",
    "sfml": "SFML", "opencv": "OpenCV", "freeimage": "FreeImage",
}  # fmt: skip
"""By the beginning of a header's, function's or library's name, in lower case."""
_RANDOM_IN_KERNELS = re.compile(r"curand(?:_\w+)?\.h")  # curand.h often stands beside curand_kernel.h
_OF_SAMPLES = re.compile(r"(?:helper|exception)(?:_\w+)?\.h")
_KNOWN_ERRORS = {
    "kernel launch from __device__": "kernels that launch kernels (dynamic parallelism) need --nvcc=-rdc=true",
    'calling a __host__ function("cudaDeviceSynchronize")': (
        "CUDA 12 has removed cudaDeviceSynchronize() in kernels: a kernel cannot wait for those that it launches"
    ),
    "texture is not a template": "CUDA 12 has removed texture references: use cudaCreateTextureObject",
    'identifier "__shfl': "GPUs since Volta have no __shfl: use __shfl_sync and its variants",
}
"""By a part of the compiler's error."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class Program:
    """A `.cu` file to build, and further words for nvcc: options, and other source files."""

    source: Path
    options: tuple[str, ...] = ()


def build(program: Program, toolchain: Toolchain, target: str, say: Say) -> Path:
    """Build a program for the simulated GPU with an architecture such as `90`; return the executable, perhaps cached.

    `say` receives the compiler's warnings. Raises CompileError with the compiler's messages if the program does not
    compile or link, and DeviceUnavailable if the stand-in does not compile here.
    """
    options = tuple("-rdc=true" if option in _COMPILED_ONLY else option for option in program.options)
    program = replace(program, options=options)
    linked = stand_in(toolchain, headers_of(toolchain))
    words = ("-I", str(linked.headers), "-cudart", "shared", "-L", str(linked.library), *map(str, linked.objects))
    words = (*options_for(target), *words)
    headers = (path for path in program.source.resolve().parent.iterdir() if path.suffix in _HEADERS)
    if fewer := fewer_headers((program.source, *_files(program.options), *headers)):
        try:
            return _built(program, toolchain, (*words, *fewer), say)
        except CompileError as error:  # one of its headers may name a special function
            if not _SPECIAL_FUNCTION.search(str(error)):
                raise
    return _built(program, toolchain, words, say)


def fewer_headers(files: Iterable[Path]) -> tuple[str, ...]:
    """Return nvcc's options for a <cmath> without special functions (Bessel and others), if no file names one.

    nvcc includes <cmath> before every file, and three compilers read it.
    """
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
    return () if any(map(_SPECIAL_FUNCTION.search, texts)) else ("-I", str(Path(AS_GRADED[-1]) / "programs"))


def options_for(target: str) -> tuple[str, ...]:
    """Return nvcc's options for a program on the simulated GPU, by the modelled GPU's architecture, such as `90`."""
    return (*_FOR_SIMULATION, "-gencode", f"arch=compute_{target},code=compute_{target}")


def build_native(program: Program, toolchain: Toolchain, say: Say) -> Path:
    """Build a program for the machine's GPU; see `build`."""
    options = ["-arch=native", "-lineinfo", "-O2"]
    libraries = headers_of(toolchain).parent / "lib"
    if not (libraries / "libcudart.so").exists() and (library := next(libraries.glob("libcudart.so.*"), None)):
        # NVIDIA's wheels have the library, but not under the name that the linker looks for
        options += ["-cudart", "none", f"-l:{library.name}", "-Xlinker", f"-rpath={libraries}"]
    return _built(program, toolchain, options, say)


def headers_of(toolchain: Toolchain) -> Path:
    """Return the folder of CUDA's headers, or raise DeviceUnavailable if nvcc does not say where it is."""
    from pytest_gpulab.devices.cuda.nvcc.toolkit import headers_of

    found = headers_of(str(toolchain.nvcc))
    if found is None or not (found / "cuda_runtime_api.h").is_file():
        raise DeviceUnavailable(f"{toolchain.nvcc} does not work: it names no folder with CUDA's headers")
    return found


def _built(program: Program, toolchain: Toolchain, options: Iterable[str], say: Say) -> Path:
    source = program.source.resolve()
    words = [*options, *AS_GRADED, *program.options]

    def produce(folder: Path) -> Iterable[Path]:
        command = [*toolchain.command, str(source), *words]
        command += ["-MD", "-MF", str(folder / "read.d"), "-o", str(folder / "program")]
        # Messages quote the source, which may have any encoding.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            raise CompileError(with_reason(done.stderr + done.stdout))
        (folder / _MESSAGES).write_text(done.stderr, encoding="utf-8", errors="replace")
        return [*_read(folder / "read.d"), *_files(words), source]

    key = ("program and messages", *toolchain.identity, str(source), str(Path.cwd()), *words, *_environment())
    folder = built(key, produce)
    say((folder / _MESSAGES).read_text(encoding="utf-8"))
    return folder / "program"


def _environment() -> Iterator[str]:
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"):
        yield f"{name}={os.environ.get(name, '')}"


def _read(dependencies: Path) -> Iterator[Path]:
    """Yield the files that the compiler has read, from a rule in make's form."""
    text = os.fsdecode(dependencies.read_bytes()).replace("\\\n", " ")
    for line in text.splitlines():
        for word in _DEPENDENCY.findall(line.partition(" :")[2] or line.partition(":")[2]):
            yield Path(word.replace("\\ ", " "))


def _files(options: Sequence[str]) -> Iterator[Path]:
    yield from (path.resolve() for path in map(Path, options) if path.is_file())


def with_reason(messages: str) -> str:
    """Return the compiler's messages, followed by a line for each thing that is not available."""
    reasons: dict[str, str] = {}
    others: list[str] = []
    for name in (name for pattern in _NAMED for name in pattern.findall(messages)):
        if _OF_SAMPLES.fullmatch(name):
            where = "put their folder Common in --nvcc=-IFOLDER before the program"
            reasons[""] = f"{name} is part of NVIDIA's cuda-samples: {where}"
        elif _RANDOM_IN_KERNELS.fullmatch(name):
            reasons[""] = f"cuRAND's functions for kernels (`{name}`) need: python -m pip install nvidia-curand"
        elif library := _library(name, _OF_NVIDIA):
            reasons.setdefault(library, f"{library} is not available with no GPU (`{name}`)")
        elif library := _library(name, _OF_OTHERS):
            reasons.setdefault(library, f"{library} is not installed (`{name}`)")
        else:
            others.append(name)
    if others and not reasons:
        reasons[""] = _not_found(others[0])
    known = [reason for text, reason in _KNOWN_ERRORS.items() if text in messages]
    return "\n".join([messages.rstrip("\n"), *reasons.values(), *known]) + "\n"


def _not_found(name: str) -> str:
    """Return how to add a header, library file or function of unknown origin."""
    if name == "main":
        return "the program has no main()"
    if name.endswith((".cu", ".cpp", ".cc", ".c", ".o")):
        return f"no such file: {name}"
    if name.startswith(("omp_", "GOMP_")):
        return f"OpenMP (`{name}`) needs --nvcc=-Xcompiler=-fopenmp before the program"
    if (portable := name.replace("\\", "/")) != name:
        return f"`{name}` was not found: write it with `/`: `{portable}`"
    if "." in name:
        return f"`{name}` was not found: put its folder in --nvcc=-IFOLDER before the program"
    return f"`{name}` was not found: put its file or library in --nvcc='FILE.cu -lLIBRARY' before the program"


def _library(name: str, of: Mapping[str, str]) -> str:
    """Return the library of a header, function or library file; empty if unknown."""
    words = (name.lower(), name.rpartition("/")[2].lower())
    found = [prefix for prefix in of if any(word.startswith(prefix) for word in words)]
    return of[max(found, key=len)] if found else ""
