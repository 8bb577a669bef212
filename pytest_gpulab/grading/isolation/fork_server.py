"""A fork server: a process that has loaded the modules of a worker, and forks workers in a tenth of the time.

The first half of this module is the client, for the processes that need workers. It starts the fork server with the
first worker and keeps it until this process ends. The second half, `main` and below, is the server.

A forked worker runs the same program text as a newly started one, with the same streams, environment and folder. The
server has one thread, uses no GPU, and reads nothing that is meant for a worker.

The server is the parent of its workers. It kills each worker with its process group, and only then reaps it, so that
the system cannot reuse the process id too early. When its control socket is closed, for whatever reason, the server
kills the remaining workers, removes its folder and exits.

Python's `multiprocessing.forkserver` would save about 200 lines, but it does not serve. It reaps a worker as soon as it
ends, so the id of its process group may be another's when the group is killed. Each worker first runs the main script
of its parent again: with the script `pytest` it starts in 200 ms instead of 5 ms, and a script without a guard for
`__main__` fails. No folder is removed if the parent was killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from pytest_gpulab.devices.compiler import sandbox
from pytest_gpulab.devices.system.processes import (
    ONE_THREAD,
    freeze,
    has_one_thread,
    mark_what_is_started,
    with_one_thread,
)

PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pytest_gpulab.grading.isolation "
PROGRAM += "import fork_server; fork_server.main(sys.argv[2])"
DOOMED = ".ended"  # suffix of the server's folder while it is being removed
END_LIMIT_S = 10.0  # for a server that is still loading; a loaded one exits at once

# Workers load most modules of these packages sooner or later, many of them on first use only. Importing them does not
# initialise CUDA or NVML, which would break in a forked process.
PACKAGES = ("pytest_gpulab.devices", "pytest_gpulab.grading")
OTHERS = (
    "pytest_gpulab.concepts", "pytest_gpulab.numerics", "cuda", "nvidia", "numpy.ma", "numpy.random",
    "pycuda.compiler", "pycuda.driver", "pynvml",
)  # fmt: skip
DESCRIPTORS = 7  # of a request: the parameters of `_become_worker`

_starting = threading.Lock()


class ForkedProcess:
    """A process that the fork server has forked, with the part of `subprocess.Popen` that a `Worker` uses."""

    def __init__(self, stdin: int, stdout: int, handle: socket.socket) -> None:
        self.stdin: IO[str] = os.fdopen(stdin, "w", encoding="utf-8")  # this process's end of the stream
        self.stdout: IO[str] = os.fdopen(stdout, encoding="utf-8")  # this process's end of the stream
        self.returncode: int | None = None  # its exit status, negative for a signal; None before `wait` returned
        self._handle = handle
        self._is_killed = False

    def kill(self) -> None:
        """Kill it and everything that it started."""
        self._is_killed = True
        with contextlib.suppress(OSError):  # the server is gone; then the parent-death watchdog kills it
            # the server reads the end of the stream, and kills the worker with its group
            self._handle.shutdown(socket.SHUT_WR)

    def wait(self, limit_s: float) -> int:
        """Wait for its end and return the exit status.

        The status is that of a killed process if the server ended first, or if it was killed and is not gone in time.
        Raises subprocess.TimeoutExpired if it has not ended in time and was not killed.
        """
        if self.returncode is None:
            status = b""
            self._handle.settimeout(limit_s)
            try:
                with self._handle.makefile("rb") as stream:
                    status = stream.readline()
            except OSError as error:
                if isinstance(error, TimeoutError) and not self._is_killed:
                    raise subprocess.TimeoutExpired("a worker", limit_s) from None
            self._handle.close()
            self.returncode = int(status or -signal.SIGKILL)
        return self.returncode

    def close(self) -> None:
        """Close all streams of a process that was never started."""
        for end in (self.stdin, self.stdout, self._handle):
            end.close()


def fork(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], errors: int, watchdog_pipe: int
) -> ForkedProcess | None:
    """Request a process from the fork server, without waiting for it.

    It runs the Python text `program` with these arguments and this whole environment. The number of the watchdog pipe's
    descriptor, which it inherits (see `worker.main`), is appended to the arguments. `errors` is the descriptor of its
    stderr. Return None if it must be started anew: it needs threads, or there is no fork server.
    """
    if not has_one_thread(environment):
        return None
    server = ensure_running()
    return server.fork([program, arguments, dict(environment)], errors, watchdog_pipe) if server else None


def ensure_running() -> ForkServer | None:
    """Start the fork server, without waiting until it has loaded; return None where it is not possible."""
    with _starting:
        return _server()


def preload() -> None:
    """Start the fork server if workers of this process will be forked, so that it loads in the meantime."""
    if has_one_thread(os.environ):
        ensure_running()


def temporary_folder(within: str | None = None) -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, by default in the fork server's, which is removed even if this process is killed."""
    if within is None and has_one_thread(with_one_thread(os.environ)):
        mark_what_is_started()  # before the fork server starts: its children show its environment
        server = ensure_running()
        within = server.folder if server is not None and Path(server.folder).is_dir() else None
    return tempfile.TemporaryDirectory(prefix="gpulab-", dir=within, ignore_cleanup_errors=True)


@lru_cache(maxsize=1)
def _server() -> ForkServer | None:
    if sys.platform != "linux":
        return None
    try:
        # try the system calls that the server needs
        os.close(os.pidfd_open(os.getpid()))
        os.close(_memory_file(""))
        return _start()
    except (AttributeError, OSError):  # Linux before 5.3, or a Python that was built for one
        return None


class ForkServer:
    """The running fork server, seen from its client; `folder` is removed when it has ended, even if it was killed."""

    def __init__(self, control: socket.socket, pid: int, folder: str) -> None:
        self.control, self.pid, self.folder = control, pid, folder

    def fork(self, request: list[object], errors: int, watchdog_pipe: int) -> ForkedProcess | None:
        """Request a process, see the function `fork`; return None if the server has died."""
        handle, other_end = socket.socketpair()
        (read, stdin), (stdout, write) = os.pipe(), os.pipe()
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)  # not by name: it may have been removed
        # The request is a file in memory, because a message has a limited size.
        own = [_memory_file(json.dumps(request)), folder, read, write]
        process = ForkedProcess(stdin, stdout, handle)
        try:
            socket.send_fds(self.control, [b"1"], [other_end.fileno(), *own, errors, watchdog_pipe])
        except OSError:
            process.close()
            return None
        finally:
            other_end.close()
            for descriptor in own:
                os.close(descriptor)
        return process


def _start() -> ForkServer:
    control, other_end = socket.socketpair()
    with other_end, contextlib.ExitStack() as if_it_fails:
        if_it_fails.enter_context(control)
        folder = tempfile.mkdtemp(prefix="gpulab-")
        if_it_fails.callback(os.rmdir, folder)
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM, json.dumps([str(entry) for entry in sys.path]), folder],
            stdin=other_end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},  # threads do not survive a fork
            start_new_session=True,  # so that a terminal's Ctrl-C does not reach it
        )
        if_it_fails.pop_all()
    server = ForkServer(control, process.pid, folder)
    weakref.finalize(server, _shut_down, process, control, folder)
    return server


def _shut_down(process: subprocess.Popen[bytes], control: socket.socket, folder: str) -> None:
    control.close()
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for left in (folder, folder + DOOMED):  # the server has done so, unless it was killed
        shutil.rmtree(left, ignore_errors=True)


def _memory_file(text: str) -> int:
    """Return the descriptor of a file in memory, positioned at its beginning."""
    descriptor = os.memfd_create("gpulab")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


# The server: everything below runs in its process, and `_become_worker` in the workers.


def main(folder: str) -> None:
    """Run the fork server, with its control socket as stdin; in a forked worker, run that worker's program.

    `folder` is for files that workers leave behind; it is removed in the end.
    """
    for name in _preloaded():
        with contextlib.suppress(Exception):  # the worker that needs it reports that it is missing
            importlib.import_module(name)
    sandbox.refusal()  # both results are cached; the workers inherit them
    with contextlib.suppress(Exception):
        importlib.import_module("pytest_gpulab.devices.cuda.nvcc.compile").read_headers()
    tempfile.tempdir = None  # cached; workers have other temporary folders
    os.chdir("/")
    gc.collect()
    freeze()  # else a worker's first collection would write to, and so copy, every page
    program = _serve(socket.socket(fileno=0))
    if program:
        exec(program, {"__name__": "__main__"})
    else:
        _remove(folder)


def _preloaded() -> Iterator[str]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield from (module.name for module in pkgutil.walk_packages(package.__path__, f"{name}."))
    yield from OTHERS


@dataclass
class _Child:
    """A forked worker, seen from the server."""

    pid: int  # its process id and that of its group
    pidfd: int  # a file descriptor that becomes readable when it has ended
    # a socket to the client, which closes its end to have the worker killed, and receives the exit status
    handle: socket.socket
    is_killed: bool = False  # whether it was killed

    def kill(self) -> None:
        self.is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Kill the rest of its group, send its exit status, and release its process id."""
        self.kill()
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):  # the client has closed its end
            self.handle.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        self.close()

    def close(self) -> None:
        os.close(self.pidfd)
        self.handle.close()


def _serve(control: socket.socket) -> str:
    """Fork and reap workers until the control socket is closed; return the program in a worker, else nothing."""
    children: list[_Child] = []
    while True:
        handles = [child.handle.fileno() for child in children if not child.is_killed]
        readable = _wait_readable([control.fileno(), *(child.pidfd for child in children), *handles])
        for child in [child for child in children if child.pidfd in readable]:
            children.remove(child)
            child.reap()
        for child in children:
            if child.handle.fileno() in readable:
                child.kill()
        if control.fileno() in readable:
            _, descriptors, _, _ = socket.recv_fds(control, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                _end(children)
                return ""
            pid = os.fork()
            if not pid:
                control.detach()  # it is stdin, which is replaced
                for child in children:
                    child.close()
                return _become_worker(*descriptors)
            children.append(_register(pid, *descriptors))


def _end(children: Iterable[_Child]) -> None:
    for child in children:
        child.kill()  # all of them before waiting for the first
    for child in children:
        child.reap()


def _remove(folder: str) -> None:
    """Remove a folder to which tools may still write: they are no children and take a moment to end."""
    doomed = folder + DOOMED
    with contextlib.suppress(OSError):
        Path(folder).rename(doomed)  # first, so that nothing new is created there
    for _ in range(2):  # the first pass misses files that are written meanwhile
        shutil.rmtree(doomed, ignore_errors=True)


def _wait_readable(descriptors: Iterable[int]) -> set[int]:
    """Wait until descriptors are readable or closed at the other end, and return those."""
    poll = select.poll()  # `select` is limited to 1024 descriptors
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll()}


def _register(pid: int, handle: int, *others: int) -> _Child:
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(pid, pid)  # also done in the worker: either may be first
    for descriptor in others:
        os.close(descriptor)
    return _Child(pid, os.pidfd_open(pid), socket.socket(fileno=handle))


def _become_worker(
    handle: int, request: int, folder: int, stdin: int, stdout: int, stderr: int, watchdog_pipe: int
) -> str:
    """Set up a forked process as its request says, and return its program."""
    os.setpgid(0, 0)
    os.close(handle)
    with os.fdopen(request) as file:
        program, arguments, environment = json.load(file)
    for standard, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.fchdir(folder)
    os.close(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = [*arguments, str(watchdog_pipe)]
    importlib.invalidate_caches()
    return str(program)
