"""Compilation of submissions with nvcc, through PyCUDA, with messages that name the student's file."""

import json
import re
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pytest_gpulab.devices.compiler.cache import Cache, key_of, users_cache
from pytest_gpulab.devices.compiler.sandbox import NOT_ENDED, Limits, Sandbox
from pytest_gpulab.devices.compiler.static_limits import with_plain_words
from pytest_gpulab.devices.protocol import CompileError, DeviceAbsent, DeviceUnavailable, OutOfMemory
from pytest_gpulab.devices.source.assembly import check_assembly, may_hold_assembly
from pytest_gpulab.devices.source.host_code import device_text, line_one, shown
from pytest_gpulab.devices.system.processes import REMEDY, memory_kills

from .headers import unneeded_headers
from .limits import KEPT, limited, said
from .toolkit import environment_settings, headers_of, nvcc_sandbox

_INCLUDE_DIR = Path(__file__).parents[3] / "include"
_REDUCED = str(_INCLUDE_DIR / "nvcc")  # replacements of CUDA's headers; each has its reason
# Kernels may call constexpr functions: the standard library's have no __device__, and NVRTC accepts them, too.
_LINES, _REPORT = "--generate-line-info", "-Xptxas=-v"
_OPTIONS = ("-std=c++17", _LINES, "--expt-relaxed-constexpr")
_TRIAL = "#include <gpulab.cuh>\n__global__ void trial(int *p) { *p = 1; }\n"
_REPORTED = re.compile(r"^(?:ptxas info .*|    \d+ bytes stack frame, .*)\n?", re.MULTILINE)
_SAID_CHARS = 300  # limit of nvcc's message about the trial
_INCLUDED = re.compile(r"In file included from |\s+from ")  # lines left out of that message
# Messages of nvcc's programs and the shell when a limit ends them. They begin a line; the text of an #error or a
# static_assert never does, so a source cannot forge them.
_ENDED = "|".join(
    (
        r"[^\n]*\(\d+\): catastrophic error: out of memory$",
        r"\S+: out of memory allocating|virtual memory exhausted|LLVM ERROR: out of memory",
        r"ptxas fatal +: Memory allocation failure|terminate called after throwing an instance of 'std::bad_alloc'",
        r"nvcc error +: '[^']*' died due to signal (?!9\b)",
        r"\S+: (?:internal compiler|fatal) error: (?!Killed)[\w ]+ signal terminated program|[^\n]*: File too large$",
        r"(?:\S+: line \d+: +\d+ )?(?:Aborted|Bus error|File size limit exceeded|Segmentation fault)",
    )
)
_MET_LIMIT = re.compile(rf"\A\Z|^(?:{_ENDED})", re.MULTILINE)
_KILLED = re.compile(
    r"^(?:nvcc error +: '[^']*' died due to signal 9\b|\S+: fatal error: Killed signal terminated program)",
    re.MULTILINE,
)


class Compiled(NamedTuple):
    """A compiled source."""

    cubin: bytes  # the machine code
    words: str  # the warnings
    ptx: str  # the text that ptxas has assembled to this machine code
    report: str  # the registers and memory of each kernel, in ptxas's words


@dataclass(frozen=True)
class _Text:
    """A source to compile: the arguments of `Nvcc.compiled`."""

    source: str
    filename: str
    architecture: str
    defines: Mapping[str, str]
    headers: Mapping[str, str]

    @cached_property
    def with_prelude(self) -> str:
        """The device code, preceded by the macros."""
        code = device_text(self.source, self.headers)
        return with_prelude(code.text, self.filename, self.defines, code.prelude)


def read_headers() -> None:
    """Read the names that CUDA's headers declare into the cache of this process, for all forked processes."""
    path = shutil.which("nvcc")
    folder = headers_of(path) if path else None
    if folder is not None:
        unneeded_headers(folder, "", {})


class Nvcc:
    """NVIDIA's compiler with limits of its processes, and a cache, the user's by default.

    Raises DeviceAbsent if nvcc is not on the PATH.
    """

    def __init__(self, limits: Limits | None = None, cache: Cache | None = None) -> None:
        self._limits, self._cache = limits or Limits(), cache or users_cache()
        self._over_limit: dict[str, str] = {}
        self._ahead: dict[str, Compiled | CompileError] = {}
        self._use_reduced = True
        self._verified: set[str] = set()
        self._trial_lock = threading.Lock()
        path = shutil.which("nvcc")
        if path is None:
            raise DeviceAbsent(
                "nvcc was not found on the PATH; install the CUDA toolkit, or add its bin folder "
                "(often /usr/local/cuda/bin) to PATH"
            )
        self._path = path

    @cached_property
    def version(self) -> str:
        """The version, such as `nvcc 13.0.88`."""
        from pycuda.compiler import get_nvcc_version

        found = re.search(r"\bV(\d+(?:\.\d+)+)", get_nvcc_version(self._path))
        return f"nvcc {found.group(1)}" if found else "nvcc (unknown version)"

    @cached_property
    def within(self) -> Sandbox:
        """The sandbox of nvcc's processes."""
        return nvcc_sandbox(self._path, _INCLUDE_DIR, self._limits, self._cache)

    def cubin(
        self, source: str, filename: str, architecture: str, defines: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[bytes, str]:
        """Return the machine code for an architecture (`sm_90`) and the warnings; see `compiled`."""
        return self.compiled(source, filename, architecture, defines, headers)[:2]

    def compiled(
        self, source: str, filename: str, architecture: str, defines: Mapping[str, str], headers: Mapping[str, str]
    ) -> Compiled:
        """Compile for an architecture (`sm_90`); each source is compiled once.

        Raises CompileError with nvcc's message, which names `filename`, or if it exceeded a limit, DeviceUnavailable
        with the cause if nvcc compiles nothing here, and OutOfMemory if the system killed one of its programs.
        """
        kills = memory_kills()
        text = _Text(source, filename, architecture, defines, headers)
        key = self._key(text)
        with _unwarned():
            made = self._ahead.pop(key, None) or self._made(key, text)
        if _was_killed(made) and memory_kills() > kills:
            raise OutOfMemory(f"the system killed the compiler: {REMEDY}")
        if isinstance(made, CompileError):
            raise made
        return made

    def try_out(self, architecture: str) -> None:
        """Raise DeviceUnavailable if nvcc compiles no trivial kernel for an architecture such as `sm_90`."""
        with _unwarned():
            _made_of_trial(self._compiled, architecture)

    def ahead(
        self,
        source: str,
        filename: str,
        architecture: str,
        variants: Sequence[Mapping[str, str]],
        headers: Mapping[str, str],
    ) -> None:
        """Compile a source with several sets of macros in parallel; `compiled` then returns the results and errors."""
        texts = [_Text(source, filename, architecture, defines, headers) for defines in variants]
        keys = [self._key(text) for text in texts]
        with _unwarned(), ThreadPoolExecutor(self._limits.at_once) as pool:
            made = zip(keys, pool.map(self._made, keys, texts), strict=True)
            self._ahead = {key: outcome for key, outcome in made if not _was_killed(outcome)}

    def _key(self, text: _Text) -> str:
        headers = (*_texts(text.headers), *_own_headers())
        inputs = (self._path, self.version, *_OPTIONS, text.architecture, text.with_prelude, *headers)
        return key_of((*inputs, *environment_settings()))

    def _made(self, key: str, text: _Text) -> Compiled | CompileError:
        """Return the cached or new compilation, or its error; one process makes it, and others wait for it."""
        with self._cache.alone(key):
            known = self._cache.get(key)
            return Compiled(known[0], *json.loads(known[1])) if known is not None else self._newly_made(key, text)

    def _newly_made(self, key: str, text: _Text) -> Compiled | CompileError:
        if text.source in self._over_limit:  # other variants would exceed the limit, too
            return CompileError(self._over_limit[text.source])
        try:
            made = self._compiled(text)
        except CompileError as error:
            if met_limit(error.diagnostics):
                self._over_limit[text.source] = explained(error.diagnostics, self._limits)
                return CompileError(self._over_limit[text.source])
            if not _was_killed(error):
                self._try(text.architecture)
            return error
        self._cache.put(key, made.cubin, json.dumps(made[1:]))
        return made

    def _try(self, architecture: str) -> None:
        """Compile a correct kernel with all headers, unless this process has compiled one before.

        This decides if the source or the machine is the cause of an error. The message cannot: a source can make nvcc
        print any text. Cached results prove nothing, as the C compiler may have changed or the disk may be full. Raises
        DeviceUnavailable if it does not compile.
        """
        with self._trial_lock:
            if architecture not in self._verified:
                _made_of_trial(partial(self._compiled_with, ()), architecture)
                self._verified.add(architecture)

    def _compiled(self, text: _Text) -> Compiled:
        """Compile with few headers and, if that fails, with all; the second result counts."""
        guards = self._unneeded_headers(text) if self._use_reduced else None
        if guards is not None:
            try:
                return self._compiled_with((_REDUCED,), text, guards)
            except CompileError as error:
                if met_limit(error.diagnostics) or _was_killed(error):
                    raise
        made = self._compiled_with((), text)
        self._verified.add(text.architecture)
        self._use_reduced = self._use_reduced and guards is None  # other variants of this file need all headers, too
        return made

    def _unneeded_headers(self, text: _Text) -> tuple[str, ...] | None:
        folder = headers_of(self._path)
        return None if folder is None else unneeded_headers(folder, text.with_prelude, text.headers)

    def _compiled_with(self, folders: tuple[str, ...], text: _Text, guards: tuple[str, ...] = ()) -> Compiled:
        try:
            return self._compiled_apart(folders, text, guards)
        except (OSError, subprocess.SubprocessError) as error:  # the disk is full, or the limit of processes is reached
            raise DeviceUnavailable(f"nvcc cannot be run here: {error}") from None

    def _compiled_apart(self, folders: tuple[str, ...], text: _Text, guards: tuple[str, ...]) -> Compiled:
        """Compile in a temporary folder."""
        with TemporaryDirectory(prefix="gpulab-") as name:
            folder = Path(name).resolve()
            included = folder / "include"
            included.mkdir()
            for header, contents in text.headers.items():
                (included / header).write_text(contents, encoding="utf-8")
            nvcc = limited(self._path, folder, self._limits, self.within, keep=True)
            folders = (*folders, str(_INCLUDE_DIR), str(included))
            options = [*_OPTIONS, _REPORT, *(f"-D{guard}" for guard in guards)]
            cubin = self._compile(nvcc, text, folders, options)
            report, ptx = diagnostics(*said(folder, self._limits)), _kept_ptx(folder, included, text.filename)
            if may_hold_assembly("\n".join((text.source, *text.headers.values()))):
                plain = self._compile(nvcc, text, folders, [option for option in options if option != _LINES], "ptx")
                check_assembly(plain.decode(errors="replace"), text.filename)
            return Compiled(cubin, _REPORTED.sub("", report).strip(), ptx, report)

    def _compile(
        self, nvcc: str, text: _Text, folders: Sequence[str], options: list[str], target: str = "cubin"
    ) -> bytes:
        from pycuda import compiler, driver

        try:
            made: bytes = compiler.compile(
                text.with_prelude,
                nvcc=nvcc,
                options=list(options),  # PyCUDA adds to them
                no_extern_c=True,
                arch=text.architecture,
                cache_dir=False,  # PyCUDA's cache is neither atomic nor bounded
                include_dirs=list(folders),
                target=target,
            )
        except driver.CompileError as error:
            _remove_leftovers(error.msg)
            # nvcc's last line, "1 error detected in the compilation of ...", ignores #line
            message = diagnostics(error.stdout, error.stderr).replace('"kernel.cu"', f'"{text.filename}"')
            raise CompileError(with_plain_words(message, text.filename)) from None
        return made


def _kept_ptx(folder: Path, included: Path, filename: str) -> str:
    """Return the PTX of nvcc's latest run; it names the exercise's headers and the student's file as they are known."""
    kept = folder / KEPT / "kernel.ptx"
    text = kept.read_text(errors="replace", encoding="utf-8") if kept.exists() else ""
    known = text.replace(f'"{included}/', '"')
    return re.sub(rf'"[^"\n]*/{re.escape(shown(filename))}"', lambda _: f'"{shown(filename)}"', known)


def _made_of_trial(compiled: Callable[[_Text], Compiled], architecture: str) -> None:
    try:
        compiled(_Text(_TRIAL, "trial.cu", architecture, {}, {}))
    except CompileError as error:
        raise DeviceUnavailable(compiles_nothing(error.diagnostics)) from None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress PyCUDA's Python warnings with nvcc's messages; those are read from nvcc's files instead.

    Warning filters belong to the whole process, so only one thread enters this, also for the threads that it starts.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _texts(headers: Mapping[str, str]) -> list[str]:
    return [part for name in sorted(headers) for part in (name, headers[name])]


@cache
def _own_headers() -> tuple[str, ...]:
    files = sorted(path for path in _INCLUDE_DIR.rglob("*") if path.is_file())
    return tuple(_texts({str(path): path.read_text(encoding="utf-8") for path in files}))


def with_prelude(source: str, filename: str, defines: Mapping[str, str], prelude: str = "") -> str:
    """Return the source preceded by its macro definitions, with a #line that names the student's file.

    Definitions in the source, unlike those on a command line, never pass through a shell.
    """
    lines = [f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines.items()]
    return "".join(lines) + prelude + line_one(filename) + source


def diagnostics(*outputs: str | bytes | None) -> str:
    """Join the compiler's outputs; PyCUDA returns them as text, bytes or None, depending on the failed step."""
    texts = [output.decode("utf-8", "replace") if isinstance(output, bytes) else output or "" for output in outputs]
    return "\n".join(text.strip() for text in texts if text.strip())


def _was_killed(outcome: object) -> bool:
    """Return True if one of nvcc's programs was killed, as for lack of memory: compilation is then retried alone."""
    return isinstance(outcome, CompileError) and _KILLED.search(outcome.diagnostics) is not None


def met_limit(message: str) -> bool:
    """Return True if the message, or an empty one, indicates that the compiler exceeded a limit."""
    return _MET_LIMIT.search(message) is not None


def explained(message: str, limits: Limits) -> str:
    """Return the message of a compiler that exceeded a limit, with the limits."""
    return f"{message}\n{NOT_ENDED}; the limits are {limits.words}.".lstrip()


def compiles_nothing(message: str) -> str:
    """Return the error for an nvcc that compiles no correct kernel, with its message, in one line."""
    lines = (" ".join(line.split()) for line in message.splitlines() if not _INCLUDED.match(line))
    words = "; ".join(lines)[:_SAID_CHARS] or "no message"
    question = "; is the CUDA toolkit as new as the GPU?" if "Unsupported gpu architecture" in words else ""
    return f"nvcc compiles no kernel at all here: {words}{question}"


def _remove_leftovers(message: str) -> None:
    """Remove the folder that PyCUDA leaves after a failure of nvcc."""
    found = re.search(r"nvcc compilation of (.+) failed", message)
    if found:
        shutil.rmtree(Path(found.group(1)).parent, ignore_errors=True)
