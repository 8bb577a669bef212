"""The protocol of devices, with its value types and errors.

A device compiles a source to a `Module`, holds `Memory`, and launches kernels. Grading uses this protocol only. Scripts
and notebooks can use it, too:

    device = open_device("sim")
    module = device.compile(source)
    x = device.array(np.arange(1000, dtype=np.float32))
    module.launch("scale", grid=(4,), block=(256,), args=(x, np.float32(2), np.uint32(1000)))
    print(x.get())
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.errors import Access as Access
from pytest_gpulab.devices.errors import Hazard as Hazard
from pytest_gpulab.devices.errors import HazardKind as HazardKind
from pytest_gpulab.devices.errors import Lane as Lane
from pytest_gpulab.devices.errors import Location as Location
from pytest_gpulab.devices.errors import SourceLine as SourceLine

from .errors import CannotSimulate as CannotSimulate  # re-exported: the protocol with its types
from .errors import CompileError as CompileError
from .errors import DeviceAbsent as DeviceAbsent
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailable as DeviceUnavailable
from .errors import KernelFault as KernelFault
from .errors import LaunchError as LaunchError
from .errors import OutOfMemory as OutOfMemory
from .errors import TooMuchWork as TooMuchWork
from .launch import DEFAULT_OPTIONS as DEFAULT_OPTIONS
from .launch import PRINT_LIMIT as PRINT_LIMIT
from .launch import DisturbedRead as DisturbedRead
from .launch import DisturbedSpace as DisturbedSpace
from .launch import InstructionSource as InstructionSource
from .launch import KernelResources as KernelResources
from .launch import LargerLaunch as LargerLaunch
from .launch import LaunchOptions as LaunchOptions
from .launch import LaunchProfile as LaunchProfile
from .launch import LineCounters as LineCounters
from .launch import RecordedReads as RecordedReads
from .launch import Schedule as Schedule
from .launch import WorkLimit as WorkLimit

Array = npt.NDArray[Any]
Texts = Mapping[str, str] | None
"""Texts by name: values of macros, or contents of files; None for none."""


class Memory(Protocol):
    """An array in device memory."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

    def get(self) -> Array:
        """Return a copy in host memory."""

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents with values castable to this dtype; raise ValueError if they have another shape."""

    def mark_unwritten(self) -> None:
        """Mark the contents as uninitialised for launches with `LaunchOptions.check`; no-op on a real GPU."""

    def damage(self, name: str = "array") -> str | None:
        """Describe a write into the array's guard zones in a sentence with the array's `name`; None without one.

        The simulated device stops at such a write, so it always returns None.
        """

    def free(self) -> None:
        """Free the memory; using it afterwards is an error."""


class Module(Protocol):
    """A compiled source."""

    @property
    def log(self) -> str:
        """The compiler's warnings."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The `__global__` functions by their unmangled names."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The `__device__` and `__constant__` variables by their names."""

    @property
    def has_state(self) -> bool:
        """True if a launch may leave state outside its arrays that a later launch can read."""

    def read_symbol(self, name: str) -> bytes:
        """Return a variable's present contents, or raise LaunchError if there is no such variable."""

    def set_constant(self, name: str, values: Array) -> None:
        """Copy an array into a `__constant__` or `__device__` variable, from its first byte.

        Raises LaunchError if there is no such variable, or it is smaller than the array.
        """

    def reset_variables(self) -> None:
        """Reset all variables to their initial values: undo `set_constant` and writes by kernels."""

    def parameter_bytes(self, kernel: str) -> tuple[int, ...] | None:
        """Return the size of each parameter, or None if unknown; raise LaunchError if there is no such kernel."""

    def parameter_types(self, kernel: str) -> tuple[str, ...] | None:
        """Return the types of the kernel's parameters, such as `const int *`, or None if its symbol has none.

        Raises LaunchError if there is no such kernel.
        """

    def alias(self, name: str, kernel: str) -> None:
        """Give a kernel, by its unmangled name, another `name` for launches and queries; `kernels` does not list it.

        The name then no longer means a kernel of that name. Raises LaunchError if there is no such kernel.
        """

    def resources(self, kernel: str) -> KernelResources:
        """Return the compiler's figures for a kernel."""

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Memory | np.generic],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> LaunchProfile:
        """Run a kernel to its end.

        Args:
            kernel: unmangled name.
            grid, block: one to three extents.
            args: device arrays and NumPy scalars, in the order of the kernel's parameters.
            shared_bytes: dynamic shared memory.
            options: options of the simulated GPU.

        Raises LaunchError if the arguments or extents do not match the kernel, KernelFault if it ended abnormally, and
        CannotSimulate if the simulated GPU lacks a feature.
        """


class DeviceInfo(NamedTuple):
    """The description of a device, for reports."""

    kind: Literal["simulated", "cuda"]
    name: str  # such as `NVIDIA H200` or `simulated GPU (cost model: NVIDIA H200)`
    compiler: str  # such as `NVRTC 13.5`
    architecture: str  # such as `sm_90`
    estimates: bool  # True if times are estimates
    details: Mapping[str, str] = {}  # further rows for the report's provenance, label to text
    summary: str = ""  # the most important details on one line, or empty
    peak_bandwidth_gb_s: float | None = None  # peak bandwidth of its memory, in 1e9 bytes per second, if known


class Device(Protocol):
    """A device that compiles CUDA C++ and runs it."""

    @property
    def info(self) -> DeviceInfo:
        """The device's description, for reports."""

    def compile(self, source: str, filename: str = "kernel.cu", defines: Texts = None, headers: Texts = None) -> Module:
        """Compile CUDA C++; `gpulab.cuh` and the toolkit's headers can be included.

        Args:
            source: the CUDA C++ text.
            filename: the name in diagnostics and line tables.
            defines: macros; a key may have parameters, as in `OP(a, b)`.
            headers: further headers, name to text.

        Raises CompileError with the compiler's message, and CannotSimulate if the simulated GPU lacks an instruction.
        """

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Memory:
        """Allocate and fill an array."""

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Memory:
        """Allocate an array with undefined contents."""

    def reset(self) -> None:
        """Free all arrays of this device."""

    def close(self) -> None:
        """Release everything; the device is unusable afterwards."""


# --- abilities that only some devices or modules have; `isinstance` finds them ---


@runtime_checkable
class BreakableDevice(Protocol):
    """A device that a kernel can break for its process, but not for other processes."""

    @property
    def usable(self) -> bool:
        """True until a kernel has broken the device."""


@runtime_checkable
class LaunchLimits(Protocol):
    """A module that can check the extents of a launch beforehand."""

    def check_launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int = 0) -> None:
        """Raise LaunchError if a launch exceeds a limit of the GPU: extents, registers per block, shared memory."""


@runtime_checkable
class PrefetchingDevice(Protocol):
    """A device that can compile several variants of a source in parallel."""

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile a source with several sets of macros in parallel; `Device.compile` then returns results and errors.

        Raises DeviceUnavailable if the compiler cannot be run.
        """


@runtime_checkable
class SharedDevice(Protocol):
    """A device that graders share: timing needs it alone."""

    def alone(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock exclusively, against all graders; raise DeviceUnavailable if the wait is too long."""

    def working(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock shared inside `with`: no other grader times meanwhile."""


def alone_on(device: object) -> AbstractContextManager[None]:
    """Hold the GPU's lock exclusively; no-op on a device that graders do not share."""
    return device.alone() if isinstance(device, SharedDevice) else nullcontext()


def at_work_on(device: object) -> AbstractContextManager[None]:
    """Hold the GPU's lock shared; no-op on a device that graders do not share."""
    return device.working() if isinstance(device, SharedDevice) else nullcontext()
