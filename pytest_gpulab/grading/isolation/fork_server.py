"""A process that has loaded whatever a worker needs, and makes workers by fork in a tenth of the time: the nursery.

`forked` starts it and asks it for children. A child runs the same program text as a worker that is started anew, with
the streams, environment and folder that it would have. The nursery has one thread, uses no GPU, reads nothing that is
meant for a child, and keeps nothing of a child but the means to end it.

It is the parent of its children: so it ends them, each with its process group, and only then gives their numbers back
to the system. When nobody holds the other end of its control socket any more, however that came about, it ends those
that are left, removes what they left behind, and ends itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.devices.compiler import sandbox

from .forked import ENDED

# What workers load sooner or later. CUDA and NVML are not initialised by that, and could not be used after a fork.
LOADED = (
    "pytest_gpulab.grading.isolation.worker",
    "pytest_gpulab.concepts",
    "pytest_gpulab.numerics",
    "pytest_gpulab.devices.cuda.device",
    "pytest_gpulab.devices.simulated",
    "cuda",
    "nvidia",
    "numpy.ma",
    "numpy.random",
    "pycuda.compiler",
    "pycuda.driver",
    "pynvml",
)
DESCRIPTORS = 7  # that come with a request: see `_settled`


def main(folder: str) -> None:
    """Be the nursery whose control socket is stdin; in a child, run its program and end as that does.

    Args:
        folder: what children leave behind is in it.
    """
    for name in LOADED:
        with contextlib.suppress(Exception):  # whoever needs it says what is missing
            importlib.import_module(name)
    sandbox.refusal()  # tried once, and read once: children inherit the answers
    with contextlib.suppress(Exception):
        importlib.import_module("pytest_gpulab.devices.cuda.nvcc.compile").read_headers()
    tempfile.tempdir = None  # theirs may be another one
    os.chdir("/")
    gc.collect()
    gc.freeze()  # or a child's first collection would copy all of it
    program = _tend(socket.socket(fileno=0))
    if program:
        exec(program, {"__name__": "__main__"})
    else:
        _remove(folder)


@dataclass
class _Child:
    """A process that was forked.

    Attributes:
        number: its own and its group's.
        ended: a file descriptor that can be read from once it has ended.
        handle: a socket whose other end stops sending to have it ended, and hears how it ended.
        is_killed: whether it was.
    """

    number: int
    ended: int
    handle: socket.socket
    is_killed: bool = False

    def kill(self) -> None:
        self.is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, signal.SIGKILL)

    def bury(self) -> None:
        """End what it left behind, tell how it ended, and give its number back."""
        self.kill()
        _, status = os.waitpid(self.number, 0)
        with contextlib.suppress(OSError):  # nobody wants to know
            self.handle.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        self.close()

    def close(self) -> None:
        os.close(self.ended)
        self.handle.close()


def _tend(control: socket.socket) -> str:
    """Make and end children until nobody asks any more; return a program in a child, and nothing in the end."""
    children: list[_Child] = []
    while True:
        handles = [child.handle.fileno() for child in children if not child.is_killed]
        ready = _ready([control.fileno(), *(child.ended for child in children), *handles])
        for child in [child for child in children if child.ended in ready]:
            children.remove(child)
            child.bury()
        for child in children:
            if child.handle.fileno() in ready:
                child.kill()
        if control.fileno() in ready:
            _, descriptors, _, _ = socket.recv_fds(control, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                _end(children)
                return ""
            number = os.fork()
            if not number:
                control.detach()  # stdin, which is replaced
                for child in children:
                    child.close()
                return _settled(*descriptors)
            children.append(_adopted(number, *descriptors))


def _end(children: Iterable[_Child]) -> None:
    for child in children:
        child.kill()  # all, before any is waited for
    for child in children:
        child.bury()


def _remove(folder: str) -> None:
    """Remove a folder that others may still write to: tools, which are no children, take a moment to end."""
    ended = folder + ENDED
    with contextlib.suppress(OSError):
        Path(folder).rename(ended)  # first: whoever begins something there finds it gone
    for _ in range(2):  # it may have been at something that was begun before
        shutil.rmtree(ended, ignore_errors=True)


def _ready(descriptors: Iterable[int]) -> set[int]:
    """Wait until there is something to be read from one, or its other end is closed, and return which."""
    poll = select.poll()  # has no limit as low as `select`'s
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll()}


def _adopted(number: int, handle: int, *others: int) -> _Child:
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(number, number)  # here as well as there: either may come first
    for descriptor in others:
        os.close(descriptor)
    return _Child(number, os.pidfd_open(number), socket.socket(fileno=handle))


def _settled(handle: int, told: int, folder: int, stdin: int, stdout: int, stderr: int, lifeline: int) -> str:
    """Become in a child what it was asked for; return its program."""
    os.setpgid(0, 0)
    os.close(handle)
    with os.fdopen(told) as file:
        program, arguments, environment = json.load(file)
    for standard, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.fchdir(folder)
    os.close(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = [*arguments, str(lifeline)]
    importlib.invalidate_caches()
    return str(program)
