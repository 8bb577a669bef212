"""nvcc, ptxas and addr2line in a sandbox: they see CUDA's files, the system's libraries, and one program's files."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_gpulab.devices.compiler.cache import users_cache
from pytest_gpulab.devices.compiler.sandbox import KIB, NOT_ENDED, Limits, Sandbox, refusal
from pytest_gpulab.devices.cuda.nvcc.limits import limited, said
from pytest_gpulab.devices.cuda.nvcc.toolkit import nvcc_sandbox
from pytest_gpulab.devices.errors import CompileError, DeviceUnavailable
from pytest_gpulab.devices.programs.build import AS_GRADED, fewer_headers, headers_of, options_for, with_reason
from pytest_gpulab.devices.programs.build_cache import built
from pytest_gpulab.devices.programs.stand_in import stand_in
from pytest_gpulab.devices.programs.toolchain import Toolchain, find_toolchain, messages_of

LIMITS = Limits()
BUILD_LIMIT_S = 90.0
_TRIAL = '#include <cstdio>\n__global__ void trial() {}\nint main() { trial<<<1, 1>>>(); std::puts(""); }\n'
_UNDER_LIMITS = f'ulimit -v {LIMITS.memory_bytes // KIB}; ulimit -t {LIMITS.compile_s}; exec "$@"'


@dataclass(frozen=True)
class ConfinedCompilers:
    """The compilers with their sandbox."""

    toolchain: Toolchain
    sandbox: Sandbox

    def build(self, folder: Path, name: str, target: str) -> Path:
        """Compile a program for an architecture such as `90`, and link it with the stand-in; return the executable.

        The real path `folder` has the source and its headers; the compiler's files are added. Raises CompileError if
        the program does not compile or link, or exceeds a limit, and DeviceUnavailable if no program compiles here.
        """
        try:
            return self._build(folder, name, target)
        except CompileError:
            _check_that_a_program_compiles(self, target)
            raise

    def _build(self, folder: Path, name: str, target: str) -> Path:
        fewer, work = fewer_headers(folder.iterdir()), folder / "build"
        work.mkdir()
        linked = stand_in(self.toolchain, headers_of(self.toolchain))
        objects = [shutil.copy(path, folder) for path in linked.objects]
        headers = shutil.copytree(linked.headers, folder / "stand-in")
        nvcc = limited(str(self.toolchain.nvcc), folder, LIMITS, self.sandbox)
        command = [nvcc, "-ccbin", str(self.toolchain.host_compiler), str(folder / name), *options_for(target)]
        included = [word for each in (headers, folder) for word in ("-I", str(each))]
        linking = ("-cudart", "none", *map(str, objects), "-o", "program")
        code = _ended([*command, *AS_GRADED, *included, *fewer, *linking], work)
        messages = "\n".join(text.decode(errors="replace") for text in said(folder, LIMITS)).strip()
        if code is None:
            raise CompileError(f"{messages}\n{NOT_ENDED}; the limit is {BUILD_LIMIT_S:g} s.".lstrip())
        if code or not (work / "program").is_file():
            raise CompileError(with_reason(messages.replace(f"{folder}/", "")))
        return work / "program"

    def before_ptxas(self, folder: Path) -> Sequence[str]:
        """Return the beginning of the command line of a program that reads and writes one folder."""
        return _limited(self.sandbox.before("--bind", str(folder), str(folder), "--chdir", str(folder)))

    def before_reader(self, folder: Path) -> Sequence[str]:
        """Return the beginning of the command line of a program that only reads a folder."""
        return _limited(self.sandbox.before("--ro-bind", str(folder), str(folder), "--chdir", "/empty"))

    def kernels(self, headers: Mapping[str, str], defines: Mapping[str, str], target: str) -> str:
        """Return the PTX of the instructor's own kernels, which may come from the cache, or raise CompileError.

        All headers are included, by their file names, with the macros that `defines` has.
        """
        lines = [f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines.items()]
        text = "".join((*lines, *(f'#include "{name}"\n' for name in headers)))

        def produce(folder: Path) -> Iterable[Path]:
            for name, contents in {**headers, "given.cu": text}.items():
                (folder / name).write_text(contents, encoding="utf-8")
            options = ("given.cu", "-ptx", f"-arch=compute_{target}", "-lineinfo", *AS_GRADED, "-o", "given.ptx")
            messages_of([*self.toolchain.command, *options], folder)
            ptx = folder / "given.ptx"
            ptx.write_text(ptx.read_text(encoding="utf-8").replace(f'"{folder}/', '"'), encoding="utf-8")
            return ()

        key = ("given", *self.toolchain.identity, target, text, *(part for item in headers.items() for part in item))
        return (built(key, produce) / "given.ptx").read_text(encoding="utf-8")


def confined_compilers() -> ConfinedCompilers:
    """Return the compilers in a sandbox, or raise DeviceUnavailable with the reason and a way out."""
    why = refusal()
    if why:
        raise DeviceUnavailable(f"{why}; a program is run in its sandbox only (on Debian: apt-get install bubblewrap)")
    toolchain = find_toolchain()
    within = nvcc_sandbox(str(toolchain.nvcc), Path(AS_GRADED[-1]), LIMITS, users_cache())
    if not within.bubblewrap:
        raise DeviceUnavailable(f"{within.words}; a program is compiled in a sandbox only")
    return ConfinedCompilers(toolchain, within)


@lru_cache(maxsize=1)
def _check_that_a_program_compiles(compilers: ConfinedCompilers, target: str) -> None:
    """Compile a correct program: messages do not distinguish an error of the text from one of the machine.

    Raises DeviceUnavailable if it does not compile.
    """
    with TemporaryDirectory(prefix="gpulab-") as name:
        folder = Path(name).resolve()
        (folder / "trial.cu").write_text(_TRIAL, encoding="utf-8")
        try:
            compilers._build(folder, "trial.cu", target)
        except CompileError as error:
            first = error.diagnostics.strip().partition("\n")[0]
            raise DeviceUnavailable(f"nvcc compiles no program at all here: {first}") from None


def _ended(command: Sequence[str], folder: Path) -> int | None:
    """Return the exit status of a compiler; None if it was killed at its time limit."""
    nothing = subprocess.DEVNULL  # its messages are in files
    process = subprocess.Popen(
        command, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    try:
        return process.wait(BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _limited(command: Sequence[str]) -> Sequence[str]:
    return "sh", "-c", _UNDER_LIMITS, "sh", *command
