"""NVRTC as one function on plain data, and the program of the compiler process, which calls it.

`compiler_process` starts this file by its path, in a sandbox without the rest of the package. This module may therefore
import only the standard library and NVIDIA's packages. The program never reads a student's text itself: it forks a
child per compilation. So a submission cannot affect the compiler of the next one.

It calls NVRTC through ctypes, because importing NVIDIA's bindings takes more time than the rest of the start.
"""

import base64
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import IO, Any, Literal, NamedTuple

TIME_LIMIT = "time limit"
Output = Literal["ptx", "cubin", "both"]
BETWEEN = b"\0"  # PTX and machine code in an output that has both


class Request(NamedTuple):
    """A compilation: text, its file name in diagnostics, includable files by name, options, kind of output.

    The macros of the variant are prepended to the text.
    """

    text: str
    filename: str
    files: dict[str, str]
    options: list[str]
    output: Output
    macros: str = ""


class Answer(NamedTuple):
    """The output, or None if the text does not compile, and the compiler's messages."""

    output: bytes | None
    log: str


_MINIMAL = "--minimal"  # omits declarations for textures, surfaces and launches from kernels; a fifth less time
_CUB = "<cub/"  # headers that need these declarations


def compiled(request: Request) -> Answer:
    """Compile in this process, with `--minimal`, and without it if that fails; the last messages count."""
    if _CUB not in request.text:
        answer = _compiled(request, [*request.options, _MINIMAL])
        if answer.output is not None:
            return answer
    return _compiled(request, request.options)


def version() -> str:
    """Return NVRTC's version, such as `13.5`."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@lru_cache(maxsize=1)
def _nvrtc() -> ctypes.CDLL:
    """Return NVRTC: the last of the known libraries, else the one that NVIDIA's package finds."""
    if not _libraries:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        _libraries.append(str(load_nvidia_dynamic_lib("nvrtc").abs_path))
    nvrtc = [ctypes.CDLL(path) for path in _libraries][-1]
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


_libraries: list[str] = []


def _compiled(request: Request, options: list[str]) -> Answer:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    text, files = (request.macros + request.text).encode(), request.files
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text, request.filename.encode(), len(files), _texts(files.values()), _texts(files)
    )
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), _texts(options))
        messages = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = messages.rstrip(b"\0").decode(errors="replace").strip()
        if status:
            return Answer(None, log or nvrtc.nvrtcGetErrorString(status).decode())
        cubin = b"" if request.output == "ptx" else _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        if request.output == "cubin":
            return Answer(cubin, log)
        ptx = _bytes(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")
        ptx = _with_given_names(ptx)
        return Answer(ptx + BETWEEN + cubin if request.output == "both" else ptx, log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _with_given_names(ptx: bytes) -> bytes:
    """Return PTX with the given file names in its line table, where NVRTC writes absolute paths."""
    try:
        folder = os.getcwd().rstrip("/")  # noqa: PTH109  # importing pathlib would take 10 ms of each start
    except OSError:  # the folder was removed: NVRTC writes the given names
        return ptx
    return ptx.replace(f'"{folder}/'.encode(), b'"')


def _texts(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _bytes(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    get(program, buffer)
    return buffer.raw if size.value > 1 else b""  # of one byte: only the terminator


def main() -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    _end_with_parent()
    task = json.loads(sys.argv[1])
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for stream in (0, 1):  # so that output of the compiler cannot get between the answers
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    try:
        version = _loaded(task)
    except Exception as error:  # NVIDIA's package raises its own types if it does not find the library
        _send(answers, {"unavailable": str(error)})
        return
    _send(answers, {"version": version})
    for line in requests:
        if not task["forks"]:
            _answer(line, answers, task)
            signal.setitimer(signal.ITIMER_PROF, 0)
            continue
        program = os.getpid()
        try:
            child = os.fork()
        except OSError as error:  # too many processes, or not enough memory
            _send(answers, {"unavailable": f"no process can be started: {error}"})
            continue
        if not child:
            _end_with_parent(program)
            os.close(requests.fileno())  # the child must not read other submissions' texts
            try:
                _answer(line, answers, task)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            _send(answers, {"ended": ending(status)})


def _end_with_parent(parent: int = 0) -> None:
    """Let the system kill this process when its parent ends, even while the compiler is busy."""
    death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)
    if parent and os.getppid() != parent:  # the parent ended before the call above
        os._exit(1)


def _loaded(task: dict[str, Any]) -> str:
    """Load NVRTC, and return its version."""
    sys.path += task["packages"]  # of NVIDIA, which Python does not search without `site`
    _libraries.extend(task["libraries"])
    return version()


def _answer(line: str, answers: IO[str], task: dict[str, Any]) -> None:
    """Compile under limits and send the answer."""
    request = json.loads(line)
    limit_s, begin_s = request.pop("limit_s"), time.process_time()
    _limit_resources(task, limit_s)
    output, log = compiled(Request(**request))
    log = log[: task["said_bytes"]]
    if output is not None and len(output) > task["output_bytes"]:
        _send(answers, {"ended": f"its output has {len(output)} bytes"})
        return
    text = None if output is None else base64.b64encode(output).decode()
    _send(answers, {"output": text, "log": log, "processor_s": time.process_time() - begin_s})


def _limit_resources(task: dict[str, Any], limit_s: int) -> None:
    """Limit this process; for good, if it compiles nothing else."""
    import resource  # not available on Windows, where `compiled` works all the same

    limits = {"CORE": 0, "FSIZE": 0, "AS": task["nvrtc_bytes"]}
    if task["forks"]:
        limits["CPU"] = limit_s
    else:
        signal.setitimer(signal.ITIMER_PROF, limit_s)  # of processor time; NVRTC raises a CPU limit that it may raise
    for what, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{what}")
        _, hard = resource.getrlimit(kind)
        beyond = most + (what == "CPU")  # SIGXCPU at the first limit of CPU time, SIGKILL at the second
        beyond = beyond if hard == resource.RLIM_INFINITY else min(beyond, hard)
        resource.setrlimit(kind, (min(most, beyond), beyond if task["forks"] else hard))


def ending(status: int) -> str:
    """Return how a process ended, in words, from the status of `os.waitpid`."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGPROF):
        return TIME_LIMIT
    if os.WIFSIGNALED(status):
        return f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it ended with exit status {os.WEXITSTATUS(status)}"


def _send(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
