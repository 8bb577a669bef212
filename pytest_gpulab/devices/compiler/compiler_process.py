"""The compiler process: NVRTC in its own process, under limits, and in a sandbox for other people's texts.

A text can crash the compiler, exhaust memory or time, or make it read files. All that is confined to this process,
which runs `nvrtc_program`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pytest_gpulab.devices.protocol import CompileError, DeviceUnavailable, OutOfMemory
from pytest_gpulab.devices.system.processes import REMEDY, Helpers, memory_kills

from . import nvrtc_program
from .cache import Cache, KnownAnswers, key_of, users_cache
from .nvrtc_program import TIME_LIMIT, Answer, Request
from .sandbox import LIBRARIES, NOT_ENDED, Limits, Sandbox, none, sandbox

START_LIMIT_S = 60.0  # many may start at the same time
BUSY_FACTOR = 5.0  # time limit by the clock over that of processor time
ATTEMPTS = 2  # when memory runs out, the system may kill a process that did not cause it
_GONE = f"it died {ATTEMPTS} times in a row"
_KILLED = (_GONE, nvrtc_program.ending(signal.SIGKILL))
_NO_MEMORY = re.compile(r"^\S[^\n]*\(\d+\): catastrophic error: out of memory$", re.MULTILINE)
_ABORTED = "Ptx assembly aborted due to errors"  # ptxas's only message when memory runs out
_PTXAS_ERROR = re.compile(r"\berror +:|; fatal +:")
_ERROR = "): error:"  # of a line of the text, unlike ptxas's
_OTHERS = "The compiler took long to find these errors, so no other variant was compiled."
_CHUNK_BYTES = 1 << 20
_ENVIRONMENT = ("LD_LIBRARY_PATH", "LC_ALL", "LANG")


class CompilerProcess:
    """A compiler process, restarted after it had to be killed.

    `protection` says how it is protected, or why there is no sandbox. If `is_shared`, all devices of this process use
    it, and none of them closes it. `within` is the sandbox; None means bubblewrap if it works, else none. With `forks`
    a child compiles each text, so that no text affects the next one; it takes 10 ms. Without, the process starts with
    the first text that is not cached, if NVRTC's version is: that saves a tenth of a second. The cache is the user's by
    default. Raises DeviceUnavailable with the reason if it cannot be started.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        within: Sandbox | None = None,
        forks: bool = True,
        cache: Cache | None = None,
    ) -> None:
        if not hasattr(os, "fork"):
            raise DeviceUnavailable("compiling students' kernels under limits requires Linux")
        self._limits, self._forks, self.is_shared = limits or Limits(), forks, not forks
        self._within = sandbox(_needed()) if within is None else within
        self._rejected: dict[str, str] = {}
        self._spent_s: dict[str, float] = {}
        self._process: _Process | None = None
        try:
            self.version = self._start() if forks else self._known_version(cache)
        except DeviceUnavailable as error:
            if within is not None or not self._within.bubblewrap:
                raise
            # before any student's text: the sandbox lacks files of this Python
            self._within = none(f"the compiler does not start in bubblewrap ({error})")
            self.version = self._start()
        self.protection = self._within.words
        self._known = KnownAnswers(users_cache() if cache is None else cache, self.version)

    def compiled(self, request: Request) -> Answer:
        """Return the answer of `nvrtc_program.compiled` to a request.

        Raises CompileError if the compiler reached a limit or crashed, DeviceUnavailable if a process must be started
        and that fails, and OutOfMemory if the system killed it because less memory was free than the limits allow.
        """
        known = self._known.get(request)
        if known is not None:
            return known
        answer = self._compiled(request)
        self._known.put(request, answer)
        return answer

    def _compiled(self, request: Request) -> Answer:
        if request.text in self._rejected:  # other variants would reach the limit, too
            raise CompileError(self._rejected[request.text])
        kills, answer = memory_kills(), self._request(request)
        if "unavailable" in answer:
            raise DeviceUnavailable(answer["unavailable"])
        if "ended" in answer:
            if answer["ended"] in _KILLED and memory_kills() > kills:
                raise OutOfMemory(f"the system killed the compiler: {REMEDY}")
            self._rejected[request.text] = f"{NOT_ENDED} ({answer['ended']}){self._may}"
            raise CompileError(self._rejected[request.text])
        output, log = answer["output"], answer["log"]
        self._spent_s[request.text] = self._spent_s.get(request.text, 0.0) + answer["processor_s"]
        if output is None and _out_of_memory(log):
            log += f"\n{NOT_ENDED}{self._may}"
            self._rejected[request.text] = log
            if not self._forks:
                self.close()  # NVRTC may lack more than this text
        elif output is None and _ERROR in log and answer["processor_s"] > self._limits.refused_s:
            self._rejected[request.text] = f"{log}\n{_OTHERS}"
        return Answer(None if output is None else base64.b64decode(output), log)

    @property
    def _may(self) -> str:
        return f"; the limits are {self._limits.nvrtc_words}."

    def _request(self, request: Request) -> dict[str, Any]:
        left_s = self._limits.all_variants_s - self._spent_s.get(request.text, 0.0)
        limit_s = max(1, min(self._limits.compile_s, int(left_s)))
        for _ in range(ATTEMPTS):
            if self._process is None or not self._process.is_own:
                self._process, _ = self._started()
            most_bytes = 2 * self._limits.output_bytes + _CHUNK_BYTES
            answer = self._process.ask(request._asdict() | {"limit_s": limit_s}, BUSY_FACTOR * limit_s, most_bytes)
            Helpers.processor_s += limit_s if answer is None else answer.get("processor_s", limit_s)
            if answer is not None:
                return answer
            ended = self._process.ending() if self._process.is_over else TIME_LIMIT
            self.close()
            if ended == TIME_LIMIT or not self._forks:
                return {"ended": ended}
        return {"ended": _GONE}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _known_version(self, cache: Cache | None) -> str:
        """Return NVRTC's version from the cache, by the library's files; start the process if it is not known."""
        files = _nvrtc_libraries(_package_folders()[1])
        if not files:  # another library may be loaded
            return self._start()
        key = key_of(["version", *(f"{path} {Path(path).stat().st_mtime_ns}" for path in files)])
        cache = users_cache() if cache is None else cache
        known = cache.get(key)
        if known is None:
            known = b"", self._start()
            cache.put(key, *known)
        return known[1]

    def _start(self) -> str:
        self._process, version = self._started()
        return version

    def _started(self) -> tuple[_Process, str]:
        process = _Process([*self._within.before(), *_command(self._limits, self._forks)])
        ready = process.answer(START_LIMIT_S, _CHUNK_BYTES)
        if ready is None or "version" not in ready:
            message = process.end()
            if ready:
                raise _unavailable(ImportError(ready["unavailable"]))
            raise DeviceUnavailable(message or "no output")
        return process, ready["version"]


class _Process:
    """The running program in its own process group; requests and answers are lines of JSON.

    `is_over` is True once its output has ended: then it has exited. Raises DeviceUnavailable if it cannot be started.
    """

    def __init__(self, command: list[str]) -> None:
        self.is_over = False
        try:
            self._start(command)
        except OSError as error:  # too many processes, or not enough memory
            raise DeviceUnavailable(f"no process can be started: {error}") from None

    def _start(self, command: list[str]) -> None:
        with contextlib.ExitStack() as if_it_fails:
            self._errors = if_it_fails.enter_context(tempfile.TemporaryFile())
            # NVRTC searches the working folder for quoted includes; a removed one stays empty.
            with tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
                self._popen = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    cwd=folder,
                    env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                    start_new_session=True,
                )
            if_it_fails.pop_all()
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._popen, self._errors)

    @property
    def is_own(self) -> bool:
        """True if this process has started it: a forked child must neither use nor end its parent's."""
        if self._owner != os.getpid():
            self._end.detach()
        return self._owner == os.getpid()

    def ask(self, request: dict[str, Any], limit_s: float, most_bytes: int) -> dict[str, Any] | None:
        """Send a request and return the answer; None if none came in time or it cannot be read."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._popen.stdin.write(json.dumps(request).encode() + b"\n")
            self._popen.stdin.flush()
        return self.answer(limit_s, most_bytes)

    def answer(self, limit_s: float, most_bytes: int) -> dict[str, Any] | None:
        """Return the next answer; None if none came in time or it cannot be read."""
        assert self._popen.stdout is not None
        stream, line, until_s = self._popen.stdout.fileno(), bytearray(), time.monotonic() + limit_s
        while not line.endswith(b"\n"):
            left_s = max(until_s - time.monotonic(), 0.0)
            if len(line) > most_bytes or not select.select([stream], [], [], left_s)[0]:
                return None
            chunk = os.read(stream, _CHUNK_BYTES)
            if not chunk:
                self.is_over = True
                return None
            line += chunk
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            return None
        return answer

    def ending(self) -> str:
        """Return how the program ended, in words."""
        code = self._popen.wait()
        return nvrtc_program.ending(-code if code < 0 else code << 8)

    def end(self) -> str:
        """Kill the program and return the last line of its stderr; empty if it was killed before."""
        if not self._end.alive:
            return ""
        stderr = os.pread(self._errors.fileno(), _CHUNK_BYTES, 0).decode("utf-8", "replace")
        self._end()
        return stderr.strip().rpartition("\n")[2]


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    errors.close()


@lru_cache(maxsize=1)
def _of_process(process: int) -> CompilerProcess:
    return CompilerProcess(within=none(""), forks=False)


def for_own_texts() -> CompilerProcess:
    """Return this process's compiler for the user's own texts, without a sandbox; it ends with this process.

    Raises DeviceUnavailable if it cannot be started; the message says why.
    """
    return _of_process(os.getpid())  # a forked child must not write into its parent's pipe


def _out_of_memory(log: str) -> bool:
    return _NO_MEMORY.search(log) is not None or (_ABORTED in log and not _PTXAS_ERROR.search(log))


def _command(limits: Limits, forks: bool) -> list[str]:
    cuda, nvidia = _package_folders()
    packages = [str(Path(folder).parent) for folder in cuda]
    task = {"packages": packages, "libraries": _nvrtc_libraries(nvidia), "forks": forks, **limits._asdict()}
    # without `site` (-S): it runs installed hooks, and takes longer than everything else together
    return [_python(), "-I", "-S", "-X", "utf8", _program(), json.dumps(task)]


def _nvrtc_libraries(nvidia: Sequence[str]) -> list[str]:
    """Return NVRTC's library, after the one that it loads: up to 13.0 NVRTC searches only the system's path for it."""
    found = [path for folder in nvidia for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))][:1]
    builtins = [path for nvrtc in found for path in sorted(nvrtc.parent.glob("libnvrtc-builtins.so.*"))]
    return [str(path) for path in (*builtins, *found)]


def _needed() -> list[str]:
    """Return the paths of Python, NVRTC and its headers: the only files that the sandbox shows."""
    prefix = Path(os.path.realpath(sys.base_prefix))
    cuda, nvidia = _package_folders()
    return [*LIBRARIES, str(prefix / "lib"), str(prefix / "lib64"), _python(), _program(), *cuda, *nvidia]


def _python() -> str:
    """Return the base interpreter: that of a virtual environment is a link, or needs the environment's folder."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _program() -> str:
    return os.path.realpath(nvrtc_program.__file__)


def _package_folders() -> tuple[list[str], list[str]]:
    """Return the folders of NVIDIA's two packages; each may have several."""
    try:
        import cuda
        import nvidia

        return [os.path.realpath(folder) for folder in cuda.__path__], [os.path.realpath(f) for f in nvidia.__path__]
    except (ImportError, AttributeError) as error:  # a module `cuda.py` is no package and has no `__path__`
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> DeviceUnavailable:
    from pytest_gpulab.devices.system.packages import why_not_imported

    return DeviceUnavailable(why_not_imported(error))
