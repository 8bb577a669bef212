"""The GPU's primary context: current only while it is needed, and dead for good after a kernel fault."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault

from .driver import driver_words, no_room_for, primary_context
from .faults import DriverRefusal, kernel_fault, late_fault, overtime_fault
from .gpu_lock import COURTESY_S, GpuLock

_Cause = TypeVar("_Cause", bound=BaseException)

_SPIN_S = 0.002  # most kernels that are timed end within this; sleeping would only add latency
_UNTIMED_SPIN_S = 0.00005  # beside others the GPU takes longer, and a processor core has something else to do
_NAP_S = 0.0005


class PrimaryContext:
    """Shared by one device, its modules and its arrays; made when it is first needed.

    A context that stays pushed makes PyCUDA abort at interpreter exit, so it is pushed and popped around each use.
    A kernel that runs longer than `launch_limit_s` is taken for one that never ends.
    """

    def __init__(self, driver: ModuleType, gpu: Any, launch_limit_s: float, turns: GpuLock) -> None:
        self.driver, self.gpu = driver, gpu
        self._launch_limit_s, self._turns = launch_limit_s, turns
        self.users: WeakSet[Any] = WeakSet()
        """What holds memory or modules in this context."""
        self.launches = 0
        """How many there were of kernels that may write anywhere."""
        self.latest = ""
        """The name of the latest of them."""
        self._context: Any = None
        self._unusable = ""

    def make(self) -> None:
        """Make it, unless it is there: takes up to a second beside others, and they cannot time meanwhile.

        Raises:
            DeviceUnavailable: the GPU has no room for it, takes one process at a time, or does not answer.
        """
        if self._context is not None:
            return
        try:
            with self._turns.making():
                self._context = primary_context(self.gpu)
        except (self.driver.Error, DeviceUnavailable) as error:
            missing = error if isinstance(error, DeviceUnavailable) else no_room_for("another process", error)
            self._unusable = str(missing)
            raise missing from None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current inside `with`, and say there what errors of the driver mean.

        Raises:
            DeviceUnavailable: the device was closed, an earlier kernel broke it, there is no room for it or in it, or
                the GPU itself failed.
            KernelFault: an earlier kernel ended abnormally, and it shows only now.
            pycuda.driver.Error, DriverRefusal: this package asked for what cannot be.
        """
        if self._unusable:
            raise DeviceUnavailable(self._unusable)
        self.make()
        try:
            self._context.push()
            try:
                yield
            finally:
                self.driver.Context.pop()
        except (self.driver.Error, DriverRefusal) as error:
            meant = self._meant(error)
            if meant is None:
                raise
            raise meant from None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Make the context current for what is not timed and may interrupt what others time; see `GpuLock`.

        Raises:
            DeviceUnavailable: as for `current`.
        """
        with self._turns.working(), self.current():
            yield

    @property
    def usable(self) -> bool:
        """Whether the device was neither closed nor broken, and there was room for it so far."""
        return not self._unusable

    def wait(self, kernel: str) -> None:
        """Wait for everything enqueued to end; printf output appears on the process's stdout by then.

        Polls an event instead of synchronising, so that Ctrl-C and the time limit take effect.

        Raises:
            KernelFault: the kernel ended abnormally, or not at all. The device cannot be used any more: the driver
                asks for a new process (cuda.h, under the error codes 700 to 721).
            DeviceUnavailable: the GPU itself failed.
        """
        end: Any = None
        spin_s = _SPIN_S if self._turns.is_timing else _UNTIMED_SPIN_S
        try:
            end = self.driver.Event()
            end.record()
            started = time.perf_counter()
            while not end.query():
                elapsed_s = time.perf_counter() - started
                if elapsed_s > self._launch_limit_s:
                    self._turns.stay_outside()
                    raise self._broken(overtime_fault(kernel, self._launch_limit_s), end)
                if elapsed_s > COURTESY_S:
                    self._turns.yield_gpu()
                if elapsed_s > spin_s:
                    time.sleep(_NAP_S)
            self.driver.Context.synchronize()
        except self.driver.Error as error:
            raise self._broken(kernel_fault(kernel, driver_words(error)), end) from None
        except KeyboardInterrupt as interrupt:
            self._turns.stay_outside()
            raise self._broken(interrupt, end, f"{kernel}: interrupted while the kernel was running") from None

    def _meant(self, error: Exception) -> KernelFault | DeviceUnavailable | None:
        """Return what an error of the driver's says of the GPU; None if it says that the call was wrong."""
        if isinstance(error, self.driver.MemoryError):
            return no_room_for("what the driver needs itself", error)
        fault = late_fault(self.latest, driver_words(error))
        return None if fault is None else self._broken(fault, None)

    def _broken(self, cause: _Cause, event: Any, what: str = "") -> _Cause:
        if isinstance(cause, DeviceUnavailable):
            self._unusable = str(cause)
        else:
            self._unusable = (
                f"the GPU cannot be used any more in this process, because of an earlier launch: {what or cause}"
            )
        # Giving anything back would wait for ever behind a kernel that never ends, even at interpreter exit. One
        # reference too many keeps Python from trying; the end of the process frees the GPU.
        for holder in (self, event, *self.users):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
        return cause

    def close(self) -> None:
        """Release the context; a broken one is left to the end of the process."""
        if self.usable:
            self._unusable = "this device was closed"
            if self._context is not None:
                self._context.detach()
