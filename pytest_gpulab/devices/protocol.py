"""The small protocol that every device speaks, and the value types and errors that cross it.

A device compiles a source to a `Module`, holds `Memory`, and launches kernels. Grading talks to this protocol
only; so does anyone who drives a device by hand from a script or a notebook:

    device = open_device("sim")
    module = device.compile(source)
    x = device.array(np.arange(1000, dtype=np.float32))
    module.launch("scale", grid=(4,), block=(256,), args=(x, np.float32(2), np.uint32(1000)))
    print(x.get())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy

from .errors import CannotSimulate as CannotSimulate  # the protocol's words, all to be had from here
from .errors import CompileError as CompileError
from .errors import DeviceAbsent as DeviceAbsent
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailable as DeviceUnavailable
from .errors import KernelFault as KernelFault
from .errors import LaunchError as LaunchError
from .errors import OutOfMemory as OutOfMemory
from .errors import TooMuchWork as TooMuchWork
from .hazards import Access as Access
from .hazards import Hazard as Hazard
from .hazards import HazardKind as HazardKind
from .hazards import Lane as Lane
from .hazards import Location as Location
from .hazards import SourceLine as SourceLine

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class KernelResources:
    """What the compiler says that one thread or block of a kernel needs (None: not known).

    Attributes:
        registers: 32-bit registers a thread.
        shared_bytes: static shared memory a block.
        local_bytes: local memory (stack and spills) a thread.
        constant_bytes: `__constant__` variables of the kernel's file.
    """

    registers: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True)
class LineCounters:
    """What the accesses and instructions of one source line add to a launch's counters, under the same names."""

    where: SourceLine
    counters: Mapping[str, float]


InstructionSource = Literal["machine code", "rules", "rules for large code", ""]


@dataclass(frozen=True)
class LaunchProfile:
    """What one launch did.

    Attributes:
        kernel, grid, block: the launch.
        counters: exact and modelled counts under Nsight Compute's names; empty on a device that does not count.
        lines: the same, split by source line.
        estimated_ms: the cost model's figure for the described GPU; None where nobody asked for it
            (`LaunchOptions.estimate`), and on a device that measures instead.
        bottleneck: what the cost model says limits the launch, in words; empty without an estimate.
        occupancy: theoretical, 0 to 1, where known.
        resources: the compiler's figures.
        hazards: see `Hazard`.
        output: what the kernel printed (capped).
        kernel_occupancy: the theoretical occupancy in full, where known.
        instruction_source: what counts of issued instructions are made from: the compiler's machine code; where it
            cannot be read, rules; where it is too large to follow, `rules for large code`; empty where nothing was
            counted.
        counted_share: of the grid's blocks, that were counted.
        representative: whether the blocks that were counted issued as many instructions as all did on average.
        order_free: whether it is known that no order of warps changes what the launch does: hazards were looked for
            (`LaunchOptions.check`) and there are none, and threads share memory by plain accesses and barriers of whole
            blocks alone.
        unset: lines that may read a variable before it has a value, of a checked launch.
        read_per_thread: bytes that a thread reads of each array among the arguments, by its position; the average, of a
            checked launch.
        unchecked: what the race check did not look at, because it would have taken too much memory: clauses to follow
            these words.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counters: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[LineCounters, ...] = ()
    estimated_ms: float | None = None
    bottleneck: str = ""
    occupancy: float | None = None
    resources: KernelResources = field(default_factory=KernelResources)
    hazards: tuple[Hazard, ...] = ()
    output: str = ""
    kernel_occupancy: KernelOccupancy | None = None
    instruction_source: InstructionSource = ""
    order_free: bool = False
    unset: tuple[SourceLine, ...] = ()
    read_per_thread: Mapping[int, float] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()
    counted_share: float = 1.0
    representative: bool = True


Schedule = Literal["lockstep", "warps", "warps-reversed"]


@dataclass(eq=False)
class DisturbedRead:
    """One read of constant memory, by a warp, that gives other values than memory holds.

    If no output changes by that, the values that were read are not used.

    Attributes:
        nth: which read by a warp, from 0, in the order of the reads; launches with the same object go on counting.
        flipped: the bits that change of each value, which has 64 bits at most. Values of variables that
            `Module.set_constant` has not set stay as they are.
        seen: reads until now.
    """

    nth: int
    flipped: int
    seen: int = 0


@dataclass(frozen=True)
class LaunchOptions:
    """How a simulated launch is carried out; a real GPU has no such choice and ignores it.

    Attributes:
        schedule: all warps of a block together, or one warp after the other between barriers, first or last first.
            A kernel whose result depends on it lacks a barrier.
        fill: the byte that shared memory, local memory and registers hold before they are written.
        sample_blocks: run about so many of the grid's blocks and scale the counters up: for cost estimates
            only, the results are incomplete. None runs all.
        sample_seed: chooses those blocks at random, one from each stretch of the grid; None: evenly spread ones.
        complete_within: run the other blocks, too, without counting them, so that the results are complete. Beyond so
            many instructions of warps the launch raises TooMuchWork instead. None: no limit, and of a sample no other
            blocks.
        count: count also where all blocks run; sampled launches always count.
        estimate: count and estimate the time also where all blocks run; sampled launches always do both.
        check: look for races and for uninitialised reads.
        time_limit_s: the longest that the launch may take, by the clock; None is no limit. A loop that changes nothing
            is endless and is stopped at once.
        cooperative: all blocks are resident at once and may wait for each other, as in `grid.sync()`.
        disturbed: a read of constant memory that gives other values.
    """

    schedule: Schedule = "lockstep"
    fill: int = 0xFF
    sample_blocks: int | None = None
    sample_seed: int | None = None
    complete_within: int | None = None
    count: bool = False
    estimate: bool = False
    check: bool = False
    time_limit_s: float | None = None
    cooperative: bool = False
    disturbed: DisturbedRead | None = None


DEFAULT_OPTIONS = LaunchOptions()


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
        """Overwrite the contents; `values` must have this shape and be castable to this dtype.

        Raises:
            ValueError: where the shape differs.
        """

    def mark_unwritten(self) -> None:
        """Count the contents as undefined, whatever they are, for a launch that looks for uninitialised reads.

        A real GPU does not look and so does nothing here.
        """

    def damage(self, name: str = "array") -> str | None:
        """Say in a sentence what was written outside the array (guard zones), which is called `name`, or None.

        The simulated device stops at such a write and so always returns None here.
        """

    def free(self) -> None:
        """Give the memory back; using it afterwards is an error."""


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
        """Whether a launch may leave something behind, not in its arrays, that a later one finds."""

    def read_symbol(self, name: str) -> bytes:
        """Return a variable's present contents.

        Raises:
            LaunchError: no such variable.
        """

    def set_constant(self, name: str, values: Array) -> None:
        """Copy an array into a `__constant__` or `__device__` variable, from its first byte.

        Raises:
            LaunchError: no such variable, or it is smaller than the array.
        """

    def reset_variables(self) -> None:
        """Give every variable the contents that it has by the source: undo `set_constant` and what kernels wrote."""

    def parameter_bytes(self, kernel: str) -> tuple[int, ...] | None:
        """Return the size of each of the kernel's parameters, or None where the device cannot tell.

        Raises:
            LaunchError: no such kernel.
        """

    def parameter_types(self, kernel: str) -> tuple[str, ...] | None:
        """Return the types of the kernel's parameters, such as `const int *`, or None where its symbol has none.

        Raises:
            LaunchError: no such kernel.
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
            args: device arrays and NumPy scalars, in the kernel's order.
            shared_bytes: dynamic shared memory.
            options: for the simulated GPU.

        Raises:
            LaunchError: the call does not fit the kernel.
            KernelFault: the kernel ended abnormally.
            CannotSimulate: simulated device only.
        """


@dataclass(frozen=True)
class DeviceInfo:
    """What to print about a device.

    Attributes:
        kind: `simulated` or `cuda`.
        name: such as `NVIDIA H200` or `simulated GPU (cost model: NVIDIA H200)`.
        compiler: such as `NVRTC 13.5`.
        architecture: such as `sm_90`.
        estimates: whether times are estimates.
        details: further rows for the report's provenance, label to text.
        summary: the most important of them on one line, or empty.
        peak_bandwidth_gb_s: what its memory transfers at most, in 1e9 bytes a second, where known.
    """

    kind: Literal["simulated", "cuda"]
    name: str
    compiler: str
    architecture: str
    estimates: bool
    details: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    peak_bandwidth_gb_s: float | None = None


class Device(Protocol):
    """Something that compiles CUDA C++ and runs it."""

    @property
    def info(self) -> DeviceInfo:
        """What to print about it."""

    def compile(
        self,
        source: str,
        filename: str = "kernel.cu",
        defines: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Module:
        """Compile CUDA C++; `gpulab.cuh` and the toolkit's headers can be included.

        Args:
            source: the text.
            filename: what diagnostics and line tables call it.
            defines: macros; a key may have parameters, as in `OP(a, b)`.
            headers: further headers that can be included, name to text.

        Raises:
            CompileError: with the compiler's own message.
            CannotSimulate: simulated device, for an instruction that it does not know.
        """

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Memory:
        """Allocate and fill an array."""

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Memory:
        """Allocate an array with undefined contents."""

    def reset(self) -> None:
        """Free every array of this device."""

    def close(self) -> None:
        """Give everything back; the device cannot be used afterwards."""


@runtime_checkable
class BreakableDevice(Protocol):
    """A device that a kernel can break for the process that launched it, and for no other."""

    @property
    def usable(self) -> bool:
        """Whether that has not happened yet."""


@runtime_checkable
class LaunchLimits(Protocol):
    """A module that can tell beforehand whether a launch would be refused, whatever its arguments."""

    def check_launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int = 0) -> None:
        """Hold a launch to the GPU's limits: extents, registers of a block, shared memory.

        Raises:
            LaunchError: it is beyond one of them.
        """


@runtime_checkable
class PrefetchingDevice(Protocol):
    """A device whose compiler can work on several variants of a source at once."""

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile a source with several sets of macros side by side, so that `Device.compile` need not.

        What does not compile is said there.

        Raises:
            DeviceUnavailable: the compiler cannot be run.
        """
