"""NVRTC behind one function on plain data, and the program that calls it for `compiler_process`.

The program is started by this file's path, in a sandbox that holds nothing else of the package: so there are only the
standard library and NVRTC's bindings in here. It never reads a student's text itself: a copy of it, forked off for one
translation, does, and ends. So nothing that one submission does to the compiler is still there for the next.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

Output = Literal["ptx", "cubin"]


class Request(NamedTuple):
    """A translation: the text, what diagnostics call it, the files it may include by name, options, what is wanted.

    Before the text come macros, which tell a variant.
    """

    text: str
    filename: str
    files: dict[str, str]
    options: list[str]
    output: Output
    macros: str = ""


class Answer(NamedTuple):
    """What was wanted, or None if the text does not compile, and what the compiler said."""

    output: bytes | None
    log: str


_FEW = "--minimal"  # declarations: none of textures, surfaces and launches from kernels; a fifth less time


def compiled(request: Request) -> Answer:
    """Translate in this process, with few declarations and, if that fails, with all: what is said then is what counts.

    NVRTC is there.
    """
    answer = _compiled(request, [*request.options, _FEW])
    return answer if answer.output is not None else _compiled(request, request.options)


def _compiled(request: Request, wanted: list[str]) -> Answer:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(
        (request.macros + request.text).encode(),
        request.filename.encode(),
        len(request.files),
        [text.encode() for text in request.files.values()],
        [name.encode() for name in request.files],
    )
    try:
        options = [option.encode() for option in wanted]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        said = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = said.rstrip(b"\0").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Answer(None, log or str(status))
        if request.output == "cubin":
            return Answer(_bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)
        ptx = _bytes(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")
        # the line table names files by absolute paths; the student knows only the name given
        return Answer(ptx.replace(f'"{str(Path.cwd()).rstrip("/")}/'.encode(), b'"'), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bytes(size_of: Any, get: Any, program: Any) -> bytes:
    _, size = size_of(program)
    if size <= 1:  # nothing but a terminator; Python shares byte strings of one character, so never write into one
        return b""
    buffer: bytes = b" " * int(size)
    get(program, buffer)
    return buffer


def main() -> None:
    """Answer requests, a line of JSON each, until there are no more."""
    _end_with_parent()
    task = json.loads(sys.argv[1])
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for stream in (0, 1):  # nothing that the compiler prints gets between the answers
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    try:
        version = _loaded(task)
    except Exception as error:  # the bindings raise their own types where the library cannot be loaded
        _send(answers, {"unavailable": str(error)})
        return
    _send(answers, {"version": version})
    for line in requests:
        program = os.getpid()
        try:
            child = os.fork()
        except OSError as error:  # there are too many processes, or there is no memory for one more
            _send(answers, {"unavailable": f"no process can be started: {error}"})
            continue
        if not child:
            _end_with_parent(program)
            os.close(requests.fileno())  # it gets no other text to read
            _answer(line, answers, task)
        _, status = os.waitpid(child, 0)
        if status:
            _send(answers, {"ended": ending(status)})


def _end_with_parent(parent: int = 0) -> None:
    """Have the system kill this process when its parent has ended, which may be while the compiler is busy."""
    death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)
    if parent and os.getppid() != parent:  # it has ended already
        os._exit(1)


def _loaded(task: dict[str, Any]) -> str:
    """Load NVRTC from the folders with NVIDIA's packages, which `site` would have found."""
    sys.path += task["packages"]
    for path in task["libraries"]:
        ctypes.CDLL(path)
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def _answer(line: str, answers: IO[str], task: dict[str, Any]) -> None:
    """Translate under limits, say what came of it, and end this process."""
    status = 1
    try:
        _limit("CORE", 0)
        _limit("FSIZE", 0)
        _limit("AS", task["memory_bytes"])
        _limit("CPU", task["compile_s"], beyond=1)  # SIGXCPU at the first, SIGKILL at the second
        output, log = compiled(Request(**json.loads(line)))
        log = log[: task["said_bytes"]]
        if output is not None and len(output) > task["output_bytes"]:
            _send(answers, {"ended": f"it has {len(output)} bytes to hand over"})
        else:
            _send(answers, {"output": None if output is None else base64.b64encode(output).decode(), "log": log})
        status = 0
    finally:
        os._exit(status)


def _limit(what: str, most: int, beyond: int = 0) -> None:
    import resource  # not on Windows, where `compiled` works, too

    kind = getattr(resource, f"RLIMIT_{what}")
    _, own = resource.getrlimit(kind)
    hard = most + beyond if own == resource.RLIM_INFINITY else min(most + beyond, own)
    resource.setrlimit(kind, (min(most, hard), hard))


def ending(status: int) -> str:
    """Return in words how a process ended, from what `os.waitpid` says."""
    if os.WIFSIGNALED(status):
        return f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it ended with exit status {os.WEXITSTATUS(status)}"


def _send(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
