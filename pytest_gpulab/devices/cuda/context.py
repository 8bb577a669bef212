"""The GPU's primary context: current only while in use, and unusable after a kernel fault."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault

from .driver import driver_words, gpu_memory_full, primary_context
from .faults import DriverRefusal, kernel_fault, late_fault, overtime_fault
from .gpu_lock import YIELD_AFTER_S, GpuLock

_Cause = TypeVar("_Cause", bound=BaseException)

_SPIN_S = 0.002  # most timed kernels end within this; sleeping would only add latency
_UNTIMED_SPIN_S = 0.00005  # other processes use the GPU and the CPU core meanwhile
_NAP_S = 0.0005  # without it, a waiting process would keep a core busy


class PrimaryContext:
    """The primary context of a GPU, shared by a device, its modules and its arrays; created on first use.

    A context that stays pushed makes PyCUDA abort at interpreter exit, so it is pushed and popped around each use.
    A kernel that runs for longer than `launch_limit_s` counts as one that never ends.
    """

    def __init__(self, driver: ModuleType, gpu: Any, launch_limit_s: float, gpu_lock: GpuLock) -> None:
        self.driver, self.gpu = driver, gpu
        self._launch_limit_s, self._gpu_lock = launch_limit_s, gpu_lock
        self.users: WeakSet[Any] = WeakSet()  # the objects that hold memory or modules in this context
        self.launches = 0  # the number of launches so far of kernels that may write anywhere
        self.latest = ""  # the name of the latest of those kernels
        self._context: Any = None
        self._unusable = ""

    def make(self) -> None:
        """Create the context on the first call. This takes up to a second, in which other processes cannot time.

        Raises DeviceUnavailable if the GPU has not enough memory, allows one process only, or does not answer.
        """
        if self._context is not None:
            return
        try:
            with self._gpu_lock.creating_context():
                self._context = primary_context(self.gpu)
        except (self.driver.Error, DeviceUnavailable) as error:
            cause = error if isinstance(error, DeviceUnavailable) else gpu_memory_full("another process", error)
            self._unusable = str(cause)
            raise cause from None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current inside `with`, and translate the driver's errors there.

        Raises DeviceUnavailable if the device was closed, an earlier kernel broke it, GPU memory is full, or the GPU
        itself failed; KernelFault for an earlier kernel; pycuda.driver.Error and DriverRefusal for invalid arguments.
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
            cause = self._translated(error)
            if cause is None:
                raise
            raise cause from None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Make the context current, as `current` does, for untimed work, which may interrupt the timing of others."""
        with self._gpu_lock.shared(), self.current():
            yield

    @property
    def usable(self) -> bool:
        """True if the device was neither closed nor broken, and its context could be created."""
        return not self._unusable

    def wait(self, kernel: str) -> None:
        """Wait for all enqueued work to end; printf output is then on the process's stdout.

        Polls an event instead of synchronising, so that Ctrl-C and the time limit take effect. Raises DeviceUnavailable
        if the GPU itself failed, and KernelFault if the kernel ended abnormally, or not at all. The device is unusable
        then: the driver requires a new process (cuda.h, under the error codes 700 to 721).
        """
        end: Any = None
        spin_s = _SPIN_S if self._gpu_lock.is_exclusive else _UNTIMED_SPIN_S
        try:
            end = self.driver.Event()
            end.record()
            started = time.perf_counter()
            while not end.query():
                elapsed_s = time.perf_counter() - started
                if elapsed_s > self._launch_limit_s:
                    self._gpu_lock.stay_unlocked()
                    raise self._broken(overtime_fault(kernel, self._launch_limit_s), end)
                if elapsed_s > YIELD_AFTER_S:
                    self._gpu_lock.yield_gpu()
                if elapsed_s > spin_s:
                    time.sleep(_NAP_S)
            self.driver.Context.synchronize()
        except self.driver.Error as error:
            raise self._broken(kernel_fault(kernel, driver_words(error)), end) from None
        except KeyboardInterrupt as interrupt:
            self._gpu_lock.stay_unlocked()
            raise self._broken(interrupt, end, f"{kernel}: interrupted while the kernel was running") from None

    def _translated(self, error: Exception) -> KernelFault | DeviceUnavailable | None:
        """Return the fault or failure behind an error of the driver; None if the call itself was invalid."""
        if isinstance(error, self.driver.MemoryError):
            return gpu_memory_full("the driver itself", error)
        fault = late_fault(self.latest, driver_words(error))
        return None if fault is None else self._broken(fault, None)

    def _broken(self, cause: _Cause, event: Any, what: str = "") -> _Cause:
        if isinstance(cause, DeviceUnavailable):
            self._unusable = str(cause)
        else:
            self._unusable = (
                f"the GPU cannot be used any more in this process, because of an earlier launch: {what or cause}"
            )
        # Freeing anything would wait for ever for a kernel that never ends, even at interpreter exit. An extra
        # reference keeps Python from freeing; the end of the process frees the GPU.
        for holder in (self, event, *self.users):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
        return cause

    def close(self) -> None:
        """Release the context; only the end of the process releases a broken one."""
        if self.usable:
            self._unusable = "this device was closed"
            if self._context is not None:
                self._context.detach()
