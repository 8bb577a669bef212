"""Compiling a submission with nvcc, through PyCUDA, so that its messages speak of the student's file."""

from __future__ import annotations

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

from pytest_gpulab.devices.compiler.cache import Cache, key_of, users_cache
from pytest_gpulab.devices.compiler.filenames import line_one
from pytest_gpulab.devices.compiler.limits import NOT_ENDED, Limits
from pytest_gpulab.devices.compiler.sandbox import Sandbox
from pytest_gpulab.devices.compiler.static_limits import with_plain_words
from pytest_gpulab.devices.protocol import CompileError, DeviceAbsent, DeviceUnavailable, OutOfMemory
from pytest_gpulab.devices.source.assembly import check_assembly, may_hold_assembly
from pytest_gpulab.devices.source.host_code import device_text
from pytest_gpulab.devices.system.memory_kills import REMEDY, memory_kills

from .headers import needless
from .limits import limited, said
from .toolkit import headers_of, nvcc_sandbox, told_by_environment

_INCLUDE_DIR = Path(__file__).parents[3] / "include"
_SPARING = str(_INCLUDE_DIR / "nvcc")  # headers in place of those that nvcc is spared; each says why
# constexpr functions are for both sides: the standard library's have no mark, and NVRTC takes them as well
_LINES = "--generate-line-info"
_OPTIONS = ("-std=c++17", _LINES, "--expt-relaxed-constexpr")
_TRIAL = "#include <gpulab.cuh>\n__global__ void trial(int *p) { *p = 1; }\n"
_SAID_CHARS = 300  # of what nvcc says of that one
_INCLUDED = re.compile(r"In file included from |\s+from ")  # which does not help there
# What nvcc's programs and the shell say when a limit ends them, from the beginning of a line: there a compiler speaks
# itself, and the words of an #error or a static_assert never stand.
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


@dataclass(frozen=True)
class _Text:
    """What to compile: the arguments of `Nvcc.cubin`."""

    source: str
    filename: str
    architecture: str
    defines: Mapping[str, str]
    headers: Mapping[str, str]

    @cached_property
    def with_prelude(self) -> str:
        """The device code behind the macros."""
        return with_prelude(device_text(self.source, self.headers).text, self.filename, self.defines)


def read_headers() -> None:
    """Learn now which words CUDA's headers declare, as `Nvcc` does with its first text: once for all that is forked."""
    path = shutil.which("nvcc")
    folder = headers_of(path) if path else None
    if folder is not None:
        needless(folder, "", {})


class Nvcc:
    """NVIDIA's compiler.

    Args:
        limits: what it may take.
        cache: what was compiled before; the user's own if None.

    Raises:
        DeviceAbsent: it is not on the PATH.
    """

    def __init__(self, limits: Limits | None = None, cache: Cache | None = None) -> None:
        self._limits, self._cache = limits or Limits(), cache or users_cache()
        self._hopeless: dict[str, str] = {}
        self._ahead: dict[str, tuple[bytes, str] | CompileError] = {}
        self._sparing = True
        self._able: set[str] = set()
        self._trying = threading.Lock()
        path = shutil.which("nvcc")
        if path is None:
            raise DeviceAbsent(
                "nvcc was not found on the PATH; install the CUDA toolkit, or add its bin folder "
                "(often /usr/local/cuda/bin) to PATH"
            )
        self._path = path

    @cached_property
    def version(self) -> str:
        """Such as `nvcc 13.0.88`."""
        from pycuda.compiler import get_nvcc_version

        found = re.search(r"\bV(\d+(?:\.\d+)+)", get_nvcc_version(self._path))
        return f"nvcc {found.group(1)}" if found else "nvcc (unknown version)"

    @cached_property
    def within(self) -> Sandbox:
        """What it runs in."""
        return nvcc_sandbox(self._path, _INCLUDE_DIR, self._limits, self._cache)

    def cubin(
        self, source: str, filename: str, architecture: str, defines: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[bytes, str]:
        """Return the machine code for one architecture (`sm_90`), and the warnings; compiled once for the same source.

        Raises:
            CompileError: with nvcc's own message, which names `filename`; or it met a limit.
            DeviceUnavailable: nvcc cannot be run here, or compiles no kernel at all; says why.
            OutOfMemory: the system killed a program of nvcc's, as memory had run out.
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
        """Make sure that nvcc compiles kernels for an architecture (`sm_90`) at all.

        Raises:
            DeviceUnavailable: it does not; with what it says.
        """
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
        """Compile a source with several sets of macros side by side; `cubin` returns what comes of it.

        Raises:
            DeviceUnavailable: see `cubin`.
        """
        texts = [_Text(source, filename, architecture, defines, headers) for defines in variants]
        keys = [self._key(text) for text in texts]
        with _unwarned(), ThreadPoolExecutor(self._limits.at_once) as pool:
            made = zip(keys, pool.map(self._made, keys, texts), strict=True)
            self._ahead = {key: outcome for key, outcome in made if not _was_killed(outcome)}

    def _key(self, text: _Text) -> str:
        headers = (*_texts(text.headers), *_own_headers())
        told = (self._path, self.version, *_OPTIONS, text.architecture, text.with_prelude, *headers)
        return key_of((*told, *told_by_environment()))

    def _made(self, key: str, text: _Text) -> tuple[bytes, str] | CompileError:
        """Return what was compiled before, or is now, or why it does not compile."""
        known = self._cache.get(key)
        if known is not None:
            return known
        if text.source in self._hopeless:  # other variants of it would take as long
            return CompileError(self._hopeless[text.source])
        try:
            made = self._compiled(text)
        except CompileError as error:
            if met_limit(error.diagnostics):
                self._hopeless[text.source] = explained(error.diagnostics, self._limits)
                return CompileError(self._hopeless[text.source])
            if not _was_killed(error):
                self._try(text.architecture)
            return error
        self._cache.put(key, *made)
        return made

    def _try(self, architecture: str) -> None:
        """Compile a kernel that nothing is wrong with, with all headers, unless this process has compiled one.

        Whether the text or the machine is to blame must not be read from the words: a text can make nvcc say any. What
        was compiled before proves nothing, as the C compiler may be another one now, or the disk full.

        Raises:
            DeviceUnavailable: it does not compile.
        """
        with self._trying:
            if architecture not in self._able:
                _made_of_trial(partial(self._compiled_with, ()), architecture)
                self._able.add(architecture)

    def _compiled(self, text: _Text) -> tuple[bytes, str]:
        """Compile with few headers and, if that fails, with all: what they say then is what counts."""
        guards = self._needless(text) if self._sparing else None
        if guards is not None:
            try:
                return self._compiled_with((_SPARING,), text, guards)
            except CompileError as error:
                if met_limit(error.diagnostics) or _was_killed(error):
                    raise
        made = self._compiled_with((), text)
        self._able.add(text.architecture)
        self._sparing = self._sparing and guards is None  # else other variants of this file need them, too
        return made

    def _needless(self, text: _Text) -> tuple[str, ...] | None:
        folder = headers_of(self._path)
        return None if folder is None else needless(folder, text.with_prelude, text.headers)

    def _compiled_with(self, folders: tuple[str, ...], text: _Text, guards: tuple[str, ...] = ()) -> tuple[bytes, str]:
        try:
            return self._compiled_apart(folders, text, guards)
        except (OSError, subprocess.SubprocessError) as error:  # no room for another file, or for another process
            raise DeviceUnavailable(f"nvcc cannot be run here: {error}") from None

    def _compiled_apart(self, folders: tuple[str, ...], text: _Text, guards: tuple[str, ...]) -> tuple[bytes, str]:
        """Compile in a folder of its own."""
        with TemporaryDirectory(prefix="gpulab-") as name:
            folder = Path(name).resolve()
            included = folder / "include"
            included.mkdir()
            for header, contents in text.headers.items():
                (included / header).write_text(contents)
            nvcc = limited(self._path, folder, self._limits, self.within, inspect=not self.within.bubblewrap)
            folders = (*folders, str(_INCLUDE_DIR), str(included))
            options = [*_OPTIONS, *(f"-D{guard}" for guard in guards)]
            cubin = self._compile(nvcc, text, folders, options)
            words = diagnostics(*said(folder, self._limits))
            if may_hold_assembly("\n".join((text.source, *text.headers.values()))):
                ptx = self._compile(nvcc, text, folders, [option for option in options if option != _LINES], "ptx")
                check_assembly(ptx.decode(errors="replace"), text.filename)
            return cubin, words

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
                cache_dir=False,  # PyCUDA's cache is neither written atomically nor bounded
                include_dirs=list(folders),
                target=target,
            )
        except driver.CompileError as error:
            _remove_leftovers(error.msg)
            # nvcc's closing line, "1 error detected in the compilation of ...", knows nothing of #line
            message = diagnostics(error.stdout, error.stderr).replace('"kernel.cu"', f'"{text.filename}"')
            raise CompileError(with_plain_words(message, text.filename)) from None
        return made


def _made_of_trial(compiled: Callable[[_Text], tuple[bytes, str]], architecture: str) -> None:
    try:
        compiled(_Text(_TRIAL, "trial.cu", architecture, {}, {}))
    except CompileError as error:
        raise DeviceUnavailable(compiles_nothing(error.diagnostics)) from None


@contextmanager
def _unwarned() -> Iterator[None]:
    """PyCUDA passes on as a warning what nvcc says of a text that compiles; it is read from nvcc's files instead.

    Warnings are the whole process's: this is for one thread, on behalf of those that it starts.
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


def with_prelude(source: str, filename: str, defines: Mapping[str, str]) -> str:
    """Return the source behind its macro definitions, with diagnostics that name the student's file.

    Definitions in the text, unlike those on a command line, pass through no shell whatever they contain.
    """
    lines = [f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines.items()]
    return "".join(lines) + line_one(filename) + source


def diagnostics(*outputs: str | bytes | None) -> str:
    """Join what the compiler said; PyCUDA hands it over as text, bytes or None, depending on what failed."""
    texts = [output.decode("utf-8", "replace") if isinstance(output, bytes) else output or "" for output in outputs]
    return "\n".join(text.strip() for text in texts if text.strip())


def _was_killed(outcome: object) -> bool:
    """Say whether one of nvcc's programs was, when memory ran out: then it is to be tried again, alone."""
    return isinstance(outcome, CompileError) and _KILLED.search(outcome.diagnostics) is not None


def met_limit(message: str) -> bool:
    """Say whether the compiler seems to have met a limit: what it says then, or that it says nothing."""
    return _MET_LIMIT.search(message) is not None


def explained(message: str, limits: Limits) -> str:
    """Return the message of a compiler that met a limit with the limits."""
    return f"{message}\n{NOT_ENDED}; it may take {limits.words}.".lstrip()


def compiles_nothing(message: str) -> str:
    """Return in one line that nvcc does not compile a kernel that nothing is wrong with, with its message."""
    lines = (" ".join(line.split()) for line in message.splitlines() if not _INCLUDED.match(line))
    words = "; ".join(lines)[:_SAID_CHARS] or "it says nothing"
    question = "; is the CUDA toolkit as new as the GPU?" if "Unsupported gpu architecture" in words else ""
    return f"nvcc compiles no kernel at all here: {words}{question}"


def _remove_leftovers(message: str) -> None:
    """Remove the folder that PyCUDA leaves behind when nvcc fails."""
    found = re.search(r"nvcc compilation of (.+) failed", message)
    if found:
        shutil.rmtree(Path(found.group(1)).parent, ignore_errors=True)
