"""A lock on a GPU among the graders of a machine: shared by work, exclusive for timing.

A GPU runs one process at a time. An H200 that has run one process for 2.1 ms switches to others with pending work,
however little, and is away for at least 0.3 ms. Kernels shorter than that end before the switch; longer ones seem a
tenth slower or more (measured beside processes that launch empty kernels, copy a few bytes, load a module or record an
event; large copies between host and GPU do not interrupt). Short kernels take 0.7 us longer, too, if another process
had the GPU just before. So while one grader times, the others wait before they give the GPU any work.

There are two shared phases. Most processes hold the work lock briefly; a process that holds it for longer releases it
between two operations if another one waits to time. Creating a context takes up to a second and has a lock of its own.
A timing process first closes the gate of the context lock and waits for its holders, then closes the gate of the work
lock: so work goes on while contexts are created. Processes that wait for another one's timing to end help to keep both
gates closed: so there is nothing to wait for when their own timing begins.

All waits are bounded. A process releases the shared lock if its kernel runs for too long, and works without the lock if
it has waited for too long. Others then time beside it, and mostly measure no difference. If they do, they time once
more with `drain`: gates closed, until no process works without the lock.

All locks are file locks, which the system releases when a process ends, however it ends.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.devices.system.locks import SharedLock
from pytest_gpulab.devices.system.processes import LOCKS

LOCK_WAIT_S = 600.0  # many graders may time one after the other
POLL_S = 0.002  # most exclusive phases take a tenth of a second
WORK_WAIT_S = 1.0  # for the holders of the work lock; then timing begins all the same
CONTEXT_WAIT_S = 3.0  # for the holders of the context lock; many contexts at once take longer
SHARED_WAIT_S = 60.0  # per process, for all its shared phases together; then it works without the lock
GATE_KEPT_S = 1.0  # a process that waits longer to time opens the gates, so that others work in between
HOLD_S = 0.01  # a process that works for longer releases the work lock between operations if another one waits to time
YIELD_AFTER_S = 0.25  # a kernel that runs longer, and is not timed, does not delay the timing of others
DRAIN_WAIT_S = 12.0  # for processes that work without the lock: a kernel is stopped after ten seconds


class GpuLock:
    """The lock of one GPU, named by its UUID or PCI address, as one process holds it.

    The folder of the lock files is by default that of the environment variable `LOCKS`, else the temporary folder.
    """

    def __init__(self, identity: str, folder: Path | None = None) -> None:
        self._name = "pytest-gpulab-" + re.sub(r"[^\w-]+", "-", identity)
        self._folder = folder or Path(os.environ.get(LOCKS) or tempfile.gettempdir())
        self._timer = SharedLock(self._path("lock"))
        self._contexts, self._work = self._gated("contexts"), self._gated("work")
        self._unlocked = SharedLock(self._path("unlocked"))  # held by processes that work without the shared lock
        self.is_exclusive = False  # True while this process times
        self._wait_left_s, self._stays_unlocked = SHARED_WAIT_S, False
        self._acquired_s = 0.0

    @contextmanager
    def exclusive(self, wait_s: float = LOCK_WAIT_S, drain: bool = False) -> Iterator[None]:
        """Hold the lock exclusively: no other process times, and none that uses the lock works.

        It waits for other timing processes for `wait_s` seconds, and for the shared holders, also for a limited time;
        with `drain`, for processes that work without the lock, too. Raises DeviceUnavailable if another process timed
        for longer.
        """
        try:
            self._acquire_timer(wait_s)
            self.is_exclusive = True
            if drain:
                self._drain()
            else:
                self._contexts.acquire_exclusive(CONTEXT_WAIT_S)
                self._work.acquire_exclusive(WORK_WAIT_S)
            yield
        finally:
            self.is_exclusive = False
            self._release_unlocked()
            self._work.release_exclusive()
            self._contexts.release_exclusive()
            self._timer.release()

    def _acquire_timer(self, wait_s: float) -> None:
        """Wait until no other process times. Keep closed gates closed meanwhile, unless the wait is long."""
        begin_s = time.monotonic()
        while not self._timer.take_exclusive(0):
            waited_s = time.monotonic() - begin_s
            if waited_s >= wait_s:
                raise DeviceUnavailable(f"another process has been timing on the GPU for {wait_s:g} s")
            for lock in (self._contexts, self._work):
                if waited_s < GATE_KEPT_S:
                    lock.keep_gate_closed()
                else:
                    lock.release_exclusive()
            time.sleep(POLL_S)

    def _drain(self) -> None:
        """Wait until no process works, with or without the lock; long work gives up the lock meanwhile."""
        end_s = time.monotonic() + DRAIN_WAIT_S
        for lock in (self._contexts, self._work):
            lock.acquire_exclusive(end_s - time.monotonic())
        self._unlocked.take_exclusive(end_s - time.monotonic())

    def shared(self) -> AbstractContextManager[None]:
        """Hold the work lock, for work that is not timed. The wait for timing processes has a limit."""
        return self._holding(self._work)

    def creating_context(self) -> AbstractContextManager[None]:
        """Hold the context lock. Unlike `shared`, others may work while a timing process waits for this one."""
        return self._holding(self._contexts)

    @contextmanager
    def _holding(self, lock: _GatedLock) -> Iterator[None]:
        # nested in a lock that suffices
        if self.is_exclusive or self._contexts.is_held:
            yield
            return
        if self._work.is_held:
            # Long work lets a waiting timing process go first.
            if time.monotonic() - self._acquired_s > HOLD_S and self._work.is_gate_closed():
                self._work.release_shared()
                self._acquire_shared(self._work)
            yield
            return
        self._acquire_shared(lock)
        try:
            yield
        finally:
            lock.release_shared()
            self._release_unlocked()

    def _acquire_shared(self, lock: _GatedLock) -> None:
        """Acquire a shared lock, or work without it if that takes too long."""
        # Otherwise a process that drains would wait for this one, while this one waits for its gate.
        self._release_unlocked()
        begin_s = time.monotonic()
        lock.acquire_shared(self._wait_left_s)
        self._acquired_s = time.monotonic()
        self._wait_left_s -= self._acquired_s - begin_s
        if not lock.is_held:
            self._unlocked.take_shared(0)

    def yield_gpu(self) -> None:
        """Release the work lock, so that others time beside work that still runs. Repeat while it runs."""
        if self.is_exclusive:
            return
        if not self._unlocked.is_held:  # after a drain it may be held exclusively: retried at the next call
            self._unlocked.take_shared(0)
        self._work.release_shared()

    def stay_unlocked(self) -> None:
        """Mark this process as working without the lock until it ends: its kernel does not end before."""
        self._stays_unlocked = self._unlocked.take_shared(0)

    def _release_unlocked(self) -> None:
        if not self._stays_unlocked:
            self._unlocked.release()

    def close(self) -> None:
        """Release all locks and close their files."""
        for each in (self._contexts, self._work, self._unlocked, self._timer):
            each.close()

    def _gated(self, name: str) -> _GatedLock:
        return _GatedLock(self._path(f"{name}-gate"), self._path(name))

    def _path(self, ending: str) -> Path:
        return self._folder / f"{self._name}.{ending}"


class _GatedLock:
    """A readers-writer lock with a gate, so that new shared holders do not starve an exclusive one.

    To acquire the lock shared, a process first holds the gate exclusively for a moment. Processes that keep the gate
    closed hold the gate shared; one of them can then acquire the lock exclusively.
    """

    def __init__(self, gate: Path, lock: Path) -> None:
        self._gate, self._lock = SharedLock(gate), SharedLock(lock)

    @property
    def is_held(self) -> bool:
        """True if this process holds the lock, shared or exclusively."""
        return self._lock.is_held

    def acquire_shared(self, wait_s: float) -> None:
        """Acquire the lock once the gate is open; do nothing if it stays closed for so long."""
        if self._gate.take_exclusive(wait_s):
            self._lock.take_shared(0)
            self._gate.release()

    def release_shared(self) -> None:
        """Release the lock, if this process holds it."""
        self._lock.release()

    def acquire_exclusive(self, wait_s: float) -> None:
        """Close the gate, then wait for the shared holders; the wait has a limit."""
        if self._gate.is_held or self._gate.take_shared(wait_s):
            self._lock.take_exclusive(wait_s)

    def keep_gate_closed(self) -> None:
        """Keep the gate closed, if others have closed it."""
        if not self._gate.is_held and self.is_gate_closed():
            self._gate.take_shared(0)

    def is_gate_closed(self) -> bool:
        """Return True if others keep the gate closed."""
        if not self._gate.take_exclusive(0):
            return True
        self._gate.release()
        return False

    def release_exclusive(self) -> None:
        """Release the lock and open the gate."""
        self._lock.release()
        self._gate.release()

    def close(self) -> None:
        """Release both locks and close their files."""
        self._lock.close()
        self._gate.close()
