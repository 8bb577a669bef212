"""The process of a program: its files and group, its time limit, and its end."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from pytest_gpulab.devices.simulated.execution.launch_state import TimeIsUp

from .messages import Channel
from .outcome import Outcome
from .server import serve
from .session import Session

FILES = "GPULAB_PROGRAM"
"""Environment variable with the descriptors of the socket and of the memory."""
_STDIN = 0


class _ProgramEnded(BaseException):
    """The program has ended while a kernel of it ran, by a signal."""


def run(executable: Path, words: Sequence[str], session: Session, timeout_s: float | None = None) -> Outcome:
    """Run a program, linked with the stand-in, to its end on the simulated GPU, with this process's streams and folder.

    `words` are the program's name, as it sees it, and its arguments. At the wall-clock limit the program and the
    processes that it has started are killed.
    """
    outcome, arena = session.outcome, session.device.arena
    session.deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ours, theirs = socket.socketpair()
    with ours:
        files = (theirs.fileno(), arena.descriptor)
        environment = {**os.environ, FILES: "{},{}".format(*files)}
        process = subprocess.Popen(words, executable=executable, pass_fds=files, env=environment, preexec_fn=os.setpgrp)
        theirs.close()
        with _foreground(process.pid), _watched(process, session, timeout_s):
            serve(session, Channel(ours))
            outcome.returncode = process.wait()
    if process.returncode >= 0 and outcome.missing is None and session.fault is None:
        session.collect_leaks()
    return outcome


@contextmanager
def _watched(process: subprocess.Popen[bytes], session: Session, timeout_s: float | None) -> Iterator[None]:
    """End the wait when the program ends, is interrupted or reaches its time limit."""
    outcome = session.outcome

    def ended(number: int, frame: FrameType | None) -> None:
        if process.poll() is not None and process.returncode < 0 and not outcome.timed_out:
            raise _ProgramEnded

    def is_late(number: int, frame: FrameType | None) -> None:
        outcome.timed_out = True
        _kill(process)
        if session.running:  # the launch ends with the line that it has reached
            raise TimeIsUp

    handlers = {signal.SIGCHLD: ended, signal.SIGALRM: is_late}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        signal.setitimer(signal.ITIMER_REAL, timeout_s or 0.0)
        yield
    except _ProgramEnded:
        pass
    except KeyboardInterrupt:
        outcome.interrupted = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)
        _kill(process)
        outcome.returncode = process.wait()
        outcome.interrupted |= outcome.returncode == -signal.SIGINT
        outcome.running = session.running


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program's group: also the processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _foreground(group: int) -> Iterator[None]:
    """Let the program read from the terminal, and let it receive Ctrl-C, if this process could before."""
    if not os.isatty(_STDIN) or os.tcgetpgrp(_STDIN) != os.getpgrp():
        yield
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or this process would stop when it takes the terminal back
    try:
        os.tcsetpgrp(_STDIN, group)
        yield
    finally:
        os.tcsetpgrp(_STDIN, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
