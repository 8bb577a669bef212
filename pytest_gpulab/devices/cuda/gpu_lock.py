"""Whose turn it is among the graders of this machine: who times on a GPU, and who may give it work meanwhile.

A GPU works for one process at a time. An H200 that has worked for one through 2.1 ms turns to the others that want
something, however little, and is away for 0.3 ms at least. Whatever is shorter ends before; what is longer seems to
take longer, by a tenth and more (measured beside processes that launch empty kernels, copy a few bytes, load a module
or record an event; large copies between host and GPU do not interrupt). What is short takes longer, too, by 0.7 us, if
others had the GPU just before. So while one grader times, the others wait before they give the GPU anything to do.

Most are at it for a moment, together in one room; who is there for longer leaves it in between if others want to time.
Making a context takes up to a second, in another room. Who wants to time shuts the door of that one, and the first
one's only once the second is empty: so the others work meanwhile. Who waits for another one's timing to end helps to
keep both doors shut: so the rooms are still empty when it begins.

Nobody waits for ever. Whose kernel does not end goes outside, where nobody waits for it, and so does who has waited too
long before a door. Others time beside them, and mostly notice nothing; who does tries once more in silence: with the
doors shut until nobody is outside any more.

GpuLock are locks on files, which the system takes back from a process that ends, however it ends.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.system.locks import SharedLock
from pytest_gpulab.devices.system.processes import LOCKS

LOCK_WAIT_S = 600.0
POLL_S = 0.002  # most turns take a tenth of a second
SILENCE_WAIT_S = 1.0  # until others have ended their work; then a timing begins all the same
MAKING_WAIT_S = 3.0  # until they have made their contexts; many at once take longer
PATIENCE_S = 60.0  # of a process, altogether, until others have timed; then it works all the same
QUEUE_S = 1.0  # who waits longer for others that time lets work go on between them
STAY_S = 0.05  # inside, for a series of things to do; then who wants to time goes first
COURTESY_S = 0.25  # a kernel that takes longer, and is not timed, keeps nobody from timing
OUTSIDE_WAIT_S = 12.0  # until those outside have ended, in silence: a kernel is stopped after ten seconds


class GpuLock:
    """One process's turns on one GPU.

    Args:
        identity: the GPU's UUID, or its PCI address.
        folder: of the lock files; if None what the environment says in `LOCKS`, else the temporary folder.
    """

    def __init__(self, identity: str, folder: Path | None = None) -> None:
        self._name = "pytest-gpulab-" + re.sub(r"[^\w-]+", "-", identity)
        self._folder = folder or Path(os.environ.get(LOCKS) or tempfile.gettempdir())
        self._turn = SharedLock(self._path("lock"))
        self._makers, self._workers = self._room("making"), self._room("working")
        self._outside = SharedLock(self._path("outside"))
        self.is_timing = False
        """Whether this process is timing."""
        self._patience_s, self._stays_outside = PATIENCE_S, False
        self._entered_s = 0.0

    @contextmanager
    def timing(self, wait_s: float = LOCK_WAIT_S, in_silence: bool = False) -> Iterator[None]:
        """Be the only one of all processes that times on the GPU, while none of the others works on it.

        Those that do not end their work are waited for, but not for ever; in silence for longer.

        Raises:
            DeviceUnavailable: the wait was too long.
        """
        try:
            self._await_turn(wait_s)
            self.is_timing = True
            if in_silence:
                self._await_silence()
            else:
                self._makers.empty(MAKING_WAIT_S)
                self._workers.empty(SILENCE_WAIT_S)
            yield
        finally:
            self.is_timing = False
            self._leave_outside()
            self._workers.reopen()
            self._makers.reopen()
            self._turn.release()

    def _await_turn(self, wait_s: float) -> None:
        """Wait until nobody else times, and keep the rooms empty that are; but not if the wait is long."""
        begin_s = time.monotonic()
        while not self._turn.take_alone(0):
            waited_s = time.monotonic() - begin_s
            if waited_s >= wait_s:
                raise DeviceUnavailable(f"another process has been timing on the GPU for {wait_s:g} s")
            for room in (self._makers, self._workers):
                if waited_s < QUEUE_S:
                    room.keep_shut()
                else:
                    room.reopen()
            time.sleep(POLL_S)

    def _await_silence(self) -> None:
        """Wait until nobody is inside or outside; whoever works for long inside goes outside meanwhile."""
        end_s = time.monotonic() + OUTSIDE_WAIT_S
        for room in (self._makers, self._workers):
            room.empty(end_s - time.monotonic())
        self._outside.take_alone(end_s - time.monotonic())

    @contextmanager
    def working(self) -> Iterator[None]:
        """Give the GPU work that is not timed, while nobody times; who does is waited for, but not for ever."""
        with self._inside(self._workers):
            yield

    @contextmanager
    def making(self) -> Iterator[None]:
        """Make a context, while nobody times; as `working`, but others may work while it is waited for."""
        with self._inside(self._makers):
            yield

    @contextmanager
    def _inside(self, room: _Room) -> Iterator[None]:
        if self.is_timing or self._makers.is_inside:
            yield
            return
        if self._workers.is_inside:
            if time.monotonic() - self._entered_s > STAY_S and self._workers.is_kept_shut():
                self._workers.leave()
                self._enter(self._workers)
            yield
            return
        self._enter(room)
        try:
            yield
        finally:
            room.leave()
            self._leave_outside()

    def _enter(self, room: _Room) -> None:
        """Go inside, or outside if that takes too long."""
        self._leave_outside()  # for who times in silence, and waits for that while this waits for them
        begin_s = time.monotonic()
        room.enter(self._patience_s)
        self._entered_s = time.monotonic()
        self._patience_s -= self._entered_s - begin_s
        if not room.is_inside:
            self._outside.take_shared(0)

    def yield_gpu(self) -> None:
        """Let others time beside the work that has begun; to be said again while it goes on."""
        if self.is_timing:
            return
        if not self._outside.is_held:  # by who times in silence, perhaps, and did not wait any longer
            self._outside.take_shared(0)
        self._workers.leave()

    def stay_outside(self) -> None:
        """Be outside until this process ends, because the work that has begun does not end before."""
        self._stays_outside = self._outside.take_shared(0)

    def _leave_outside(self) -> None:
        if not self._stays_outside:
            self._outside.release()

    def close(self) -> None:
        """Give everything back."""
        for each in (self._makers, self._workers, self._outside, self._turn):
            each.close()

    def _room(self, name: str) -> _Room:
        return _Room(self._path(f"{name}-door"), self._path(name))

    def _path(self, ending: str) -> Path:
        return self._folder / f"{self._name}.{ending}"


class _Room:
    """Where processes are side by side, unless others keep its door shut.

    Those inside hold the room together. Who enters holds the door alone, for a moment, which those that keep it shut
    hold together; one of them can then hold the room alone.
    """

    def __init__(self, door: Path, room: Path) -> None:
        self._door, self._inside = SharedLock(door), SharedLock(room)

    @property
    def is_inside(self) -> bool:
        """Whether this process is, by itself or with others."""
        return self._inside.is_held

    def enter(self, wait_s: float) -> None:
        """Go inside as soon as the door is not kept shut; stay outside if it is so long."""
        if self._door.take_alone(wait_s):
            self._inside.take_shared(0)
            self._door.release()

    def leave(self) -> None:
        """Go outside, if this process is inside."""
        self._inside.release()

    def empty(self, wait_s: float) -> None:
        """Shut the door, and wait until nobody is inside any more, but not for ever."""
        if self._door.is_held or self._door.take_shared(wait_s):
            self._inside.take_alone(wait_s)

    def keep_shut(self) -> None:
        """Shut the door as well, if others have shut it."""
        if not self._door.is_held and self.is_kept_shut():
            self._door.take_shared(0)

    def is_kept_shut(self) -> bool:
        """Say whether others keep the door shut."""
        if not self._door.take_alone(0):
            return True
        self._door.release()
        return False

    def reopen(self) -> None:
        """Shut the door no longer."""
        self._inside.release()
        self._door.release()

    def close(self) -> None:
        """Give everything back for good."""
        self._inside.close()
        self._door.close()
