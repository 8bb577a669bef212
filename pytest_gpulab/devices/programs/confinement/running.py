"""A program in a sandbox: it has a socket to the simulated GPU, its input, and nothing else of this machine.

The simulated GPU runs outside. It records all figures of launches for the report: the program can only request a
launch, which is then executed. The expected output is never sent to the program.
"""

import json
import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pytest_gpulab.devices.compiler.sandbox import KIB, LIBRARIES, sandbox
from pytest_gpulab.devices.errors import DeviceUnavailable
from pytest_gpulab.devices.programs.messages import Channel, InvalidRequest
from pytest_gpulab.devices.programs.process import FILES
from pytest_gpulab.devices.programs.server import serve
from pytest_gpulab.devices.programs.session import Session

from .system_calls import system_call_filter

FOLDER = "/work"
MAX_OPEN_FILES = 256
_SIGNALLED = 128  # bubblewrap's exit status for a program that a signal ended, less the signal's number
_FILE_BLOCK_BYTES = 512


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of one run of a program."""

    timeout_s: float = 20.0  # wall-clock time, kernels included
    memory_bytes: int = 1 << 30  # address space of the host's code
    device_bytes: int = 256 << 20  # device, managed and pinned memory; also the size of a file
    output_bytes: int = 1 << 20  # standard output and standard error, each
    disk_bytes: int = 64 << 20  # all files in the working folder


@dataclass(frozen=True)
class ProgramInput:
    """Input of a run."""

    arguments: Sequence[str] = ()  # after the program's name
    stdin: bytes = b""  # standard input
    # files in the working folder, by name; the program can only read them
    files: Mapping[str, bytes] = field(default_factory=dict)
    writable: Sequence[str] = ()  # names of files that the program may write, and that are read afterwards


@dataclass(frozen=True)
class ProgramOutput:
    """Output of a run."""

    stdout: bytes  # the beginning of the stream
    stderr: bytes  # the beginning of the stream
    is_cut: bool  # whether a stream or a file was longer than its limit
    files: Mapping[str, bytes]  # contents of the writable files, by name; empty for one that was not written
    # the request that ended the run, because no call of the runtime library makes it; else empty
    invalid_request: str = ""


def run_confined(executable: Path, given: ProgramInput, session: Session, limits: ProgramLimits) -> ProgramOutput:
    """Run a program, linked with the stand-in, to its end in a sandbox; the session's outcome records the run.

    The session has the simulated GPU and the program's memory limit. Raises DeviceUnavailable with the reason if the
    sandbox does not work.
    """
    session.deadline = time.monotonic() + limits.timeout_s
    with ExitStack() as stack:
        host = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpulab-"))).resolve()
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        status = stack.enter_context(tempfile.TemporaryFile())
        with theirs:
            process = _started(
                stack, executable, given, limits, host, (theirs, session.device.arena.descriptor, status)
            )
        pool = stack.enter_context(ThreadPoolExecutor(2))
        streams = [pool.submit(_beginning, stream, limits.output_bytes) for stream in (process.stdout, process.stderr)]
        invalid = _served(process, session, Channel(ours), limits.timeout_s)
        (stdout, cut_out), (stderr, cut_err) = map(Future.result, streams)
        session.outcome.returncode = _exit_code(status, session, stderr)
        files, cut_file = _written(host, given.writable, limits.disk_bytes)
    outcome = session.outcome
    if outcome.returncode >= 0 and outcome.missing is None and session.fault is None and not outcome.timed_out:
        session.collect_leaks()
    return ProgramOutput(stdout, stderr, cut_out or cut_err or cut_file, files, invalid)


def _started(
    stack: ExitStack, executable: Path, given: ProgramInput, limits: ProgramLimits, host: Path,
    connection: tuple[socket.socket, int, IO[bytes]],
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start the program with its files in the sandbox."""
    theirs, memory, status = connection
    stdin, calls = (_file_with(stack, contents) for contents in (given.stdin, system_call_filter()))
    options = [*_files(executable, given, limits, host), "--clearenv", "--setenv", FILES, f"{theirs.fileno()},{memory}"]
    options += ["--seccomp", str(calls.fileno()), "--json-status-fd", str(status.fileno()), "--chdir", FOLDER]
    within = sandbox(LIBRARIES)
    if not within.bubblewrap:
        raise DeviceUnavailable(within.words)
    program = [f"./{executable.name}", *given.arguments]
    command = ["sh", "-c", _under(limits), "sh", *within.before(*options), *program]
    files = (theirs.fileno(), memory, calls.fileno(), status.fileno())
    return subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=files, start_new_session=True
    )


def _file_with(stack: ExitStack, contents: bytes) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(contents)
    file.seek(0)
    return file


def _under(limits: ProgramLimits) -> str:
    """Return a shell script that runs its arguments under limits."""
    values = {
        "v": limits.memory_bytes // KIB,
        "t": math.ceil(limits.timeout_s) + 1,
        "f": limits.device_bytes // _FILE_BLOCK_BYTES,  # device memory is a file, too
        "n": MAX_OPEN_FILES,
        "c": 0,
    }
    return "".join(f"ulimit -{name} {value} && " for name, value in values.items()) + 'exec "$@"'


def _files(executable: Path, given: ProgramInput, limits: ProgramLimits, host: Path) -> Iterator[str]:
    """Yield bubblewrap's options for the working folder: in memory, with the input and the writable files."""
    yield from ("--size", str(limits.disk_bytes), "--tmpfs", FOLDER, "--symlink", FOLDER, "/tmp")
    yield from ("--ro-bind", str(executable), f"{FOLDER}/{executable.name}")
    contents = {**dict.fromkeys(given.writable, b""), **given.files}
    for name, data in contents.items():
        (host / name).write_bytes(data)
        yield from ("--bind" if name in given.writable else "--ro-bind", str(host / name), f"{FOLDER}/{name}")


def _served(process: subprocess.Popen[bytes], session: Session, channel: Channel, timeout_s: float) -> str:
    """Answer the program's calls until it ends or must end; return the invalid request that has ended it, if any."""
    with _killed_after(process, session, timeout_s):
        try:
            serve(session, channel)
            process.wait()  # it may have closed its end of the socket, and go on
        except InvalidRequest as error:
            return str(error)
        finally:
            session.outcome.running = session.running
    return ""


@contextmanager
def _killed_after(process: subprocess.Popen[bytes], session: Session, timeout_s: float) -> Iterator[None]:
    """Kill the sandbox with all that is in it at the time limit, or at the end of the block."""

    def is_late() -> None:
        session.outcome.timed_out = True
        _kill(process)

    timer = threading.Timer(timeout_s, is_late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _kill(process)
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _beginning(stream: IO[bytes] | None, limit: int) -> tuple[bytes, bool]:
    """Return the beginning of a stream, and whether it goes on; then the program gets SIGPIPE."""
    assert stream is not None
    with stream:
        found = stream.read(limit + 1)
    return found[:limit], len(found) > limit


def _exit_code(status: IO[bytes], session: Session, stderr: bytes) -> int:
    """Return the program's exit code, negative for a signal, from bubblewrap's report.

    Raises DeviceUnavailable if bubblewrap has not started it.
    """
    status.seek(0)
    reports = [json.loads(line) for line in status.read().splitlines() if line.strip()]
    if not any("child-pid" in report for report in reports) and not session.outcome.timed_out:
        raise DeviceUnavailable(f"the sandbox does not start: {stderr.decode(errors='replace').strip()[:200]}")
    code = next((int(report["exit-code"]) for report in reports if "exit-code" in report), -signal.SIGKILL)
    is_signal = code - _SIGNALLED in set(signal.Signals)
    return _SIGNALLED - code if is_signal else code


def _written(host: Path, names: Sequence[str], limit: int) -> tuple[dict[str, bytes], bool]:
    """Return the beginnings of the writable files, and whether one is longer than the limit."""
    found = {name: _beginning((host / name).open("rb"), limit) for name in names}
    return {name: data for name, (data, _) in found.items()}, any(is_longer for _, is_longer in found.values())
