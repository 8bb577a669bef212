"""Workers that are forked in the nursery, as whoever asked for them sees them: to make, to end, to hear how they ended.

The nursery is started with the first one and lives as long as this process; see `nursery` for what it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import IO

from pytest_gpulab.devices.system.threads import ONE_THREAD, has_one_thread

PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pytest_gpulab.grading.isolation "
PROGRAM += "import fork_server; fork_server.main(sys.argv[2])"
ENDED = ".ended"  # to the name of the nursery's folder, while it is removed
END_LIMIT_S = 10.0  # for a nursery that has not started yet; others need a moment

_starting = threading.Lock()


class Forked:
    """A child of the nursery, with as much of `subprocess.Popen` as a `process.Worker` uses.

    Attributes:
        stdin, stdout: what it reads, to be written, and what it writes, to be read.
        returncode: its exit status, negative for a signal; None as long as nobody waited for it.
    """

    def __init__(self, stdin: int, stdout: int, handle: socket.socket) -> None:
        self.stdin: IO[str] = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(stdout, encoding="utf-8")
        self.returncode: int | None = None
        self._handle = handle
        self._is_killed = False

    def kill(self) -> None:
        """Have it ended, at once, with all that it started."""
        self._is_killed = True
        with contextlib.suppress(OSError):  # no nursery any more: it ends when its lifeline is cut
            self._handle.shutdown(socket.SHUT_WR)

    def wait(self, limit_s: float) -> int:
        """Return the exit status when it has ended.

        It is that of a killed process if the nursery ends before it does, or if it was killed and is not gone in time.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time, and nobody killed it.
        """
        if self.returncode is None:
            status = b""
            self._handle.settimeout(limit_s)
            try:
                with self._handle.makefile("rb") as said:
                    status = said.readline()
            except OSError as error:
                if isinstance(error, TimeoutError) and not self._is_killed:
                    raise subprocess.TimeoutExpired("a worker", limit_s) from None
            self._handle.close()
            self.returncode = int(status or -signal.SIGKILL)
        return self.returncode

    def close(self) -> None:
        """Give up what was never started."""
        for end in (self.stdin, self.stdout, self._handle):
            end.close()


def forked(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], errors: int, lifeline: int
) -> Forked | None:
    """Ask the nursery for a process, without waiting for it.

    Args:
        program: Python text that it runs.
        arguments: in its `sys.argv`, where its own number for the lifeline follows them.
        environment: all of its environment.
        errors: file descriptor of its stderr.
        lifeline: file descriptor that it is handed; see `worker.main`.

    Returns:
        The process, or None if it has to be started anew: it wants threads, or there is no nursery.
    """
    if not has_one_thread(environment):
        return None
    nursery = get_ready()
    return nursery.fork([program, arguments, dict(environment)], errors, lifeline) if nursery else None


def get_ready() -> _Nursery | None:
    """Start the nursery, without waiting until it has loaded everything; None where there cannot be one."""
    with _starting:
        return _nursery()


def load_ahead() -> None:
    """Start the nursery, if children of this process will be forked: it loads while something else is done."""
    if has_one_thread(os.environ):
        get_ready()


@lru_cache(maxsize=1)
def _nursery() -> _Nursery | None:
    if sys.platform != "linux":
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(_file(""))
        return _started()
    except (AttributeError, OSError):  # Linux before 5.3, or a Python that was built for one
        return None


class _Nursery:
    """The other end of `nursery.main`.

    Attributes:
        control: asks it.
        number: of its process.
        folder: that it removes when this process has ended, however it did.
    """

    def __init__(self, control: socket.socket, number: int, folder: str) -> None:
        self.control, self.number, self.folder = control, number, folder

    def fork(self, told: list[object], errors: int, lifeline: int) -> Forked | None:
        """Ask for a child, see `forked`; None: the nursery has died."""
        handle, theirs = socket.socketpair()
        (read, stdin), (stdout, write) = os.pipe(), os.pipe()
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)  # may have been removed: a name would not do
        own = [_file(json.dumps(told)), folder, read, write]
        child = Forked(stdin, stdout, handle)
        try:
            socket.send_fds(self.control, [b"1"], [theirs.fileno(), *own, errors, lifeline])
        except OSError:
            child.close()
            return None
        finally:
            theirs.close()
            for descriptor in own:
                os.close(descriptor)
        return child


def _started() -> _Nursery:
    control, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as if_it_fails:
        if_it_fails.enter_context(control)
        folder = tempfile.mkdtemp(prefix="gpulab-")
        if_it_fails.callback(os.rmdir, folder)
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM, json.dumps([str(entry) for entry in sys.path]), folder],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},  # threads do not survive a fork
            start_new_session=True,  # out of reach of a terminal's Ctrl-C
        )
        if_it_fails.pop_all()
    nursery = _Nursery(control, process.pid, folder)
    weakref.finalize(nursery, _end, process, control, folder)
    return nursery


def _end(process: subprocess.Popen[bytes], control: socket.socket, folder: str) -> None:
    control.close()
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for left in (folder, folder + ENDED):  # it does so itself, if it lives
        shutil.rmtree(left, ignore_errors=True)


def _file(text: str) -> int:
    """Return the descriptor of a file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("gpulab")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
