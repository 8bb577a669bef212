"""The state of a program's run on the simulated GPU: memory, modules, kernels, streams, and a kernel's fault."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pytest_gpulab.devices.errors import OutOfMemory
from pytest_gpulab.devices.simulated.memory.spaces import ARENA_BASE, Allocation

from .api import CudaError, Error
from .device import ProgramDevice, ProgramModule
from .outcome import CallSite, Leak, Outcome
from .shared_memory import SharedAllocation, Unfinished

LAUNCH_LIMIT_S = 120.0
DYNAMIC_SHARED_BYTES = 48 << 10  # without cudaFuncSetAttribute
SHARE_OF_TIMEOUT = 0.9  # of the time that is left to the program
LEAST_LIMIT_S = 0.5  # of a launch: of a program that launches without end, the last one is not to blame
MEMORY_SHARE = 1 / 3  # of the memory that the machine has left; the check of unwritten bytes takes as much again
MAX_FREED = 1000  # freed allocations that are remembered, for messages
FIRST_HANDLE = 0x1000
SHARED_WITH_HOST = ("managed", "managed variable", "pinned")
WATCHED = ("device", *SHARED_WITH_HOST)
LEGACY_STREAMS = (0, 1)


@dataclass(frozen=True)
class RunOptions:
    """Options of a run."""

    check: bool = True  # look for races and uninitialised reads, and for memory that the host uses too early
    profile: bool = False  # count and estimate every launch; else only those that events measure
    launch_limit_s: float = LAUNCH_LIMIT_S  # the limit per launch, in seconds


@dataclass(frozen=True)
class Memory:
    """An allocation of the program: `kind` is `device`, `managed`, `pinned`, `registered` or `variable`."""

    allocation: Allocation
    kind: str
    site: CallSite


@dataclass
class Kernel:
    """A kernel of a module, with the dynamic shared memory that it may use."""

    module: ProgramModule
    name: str
    parameter_bytes: tuple[int, ...]
    dynamic_limit: int

    @classmethod
    def of(cls, module: ProgramModule, name: str) -> Kernel:
        """Return a kernel with the limit that it has at first."""
        limit = max(0, DYNAMIC_SHARED_BYTES - module.static_shared_bytes(name))
        return cls(module, name, module.parameter_bytes(name), limit)


@dataclass
class Session:
    """The state of a run."""

    device: ProgramDevice
    options: RunOptions
    outcome: Outcome = field(default_factory=Outcome)
    memories: dict[int, Memory] = field(default_factory=dict)  # live allocations of the program, by address
    # sites of the calls that freed memory, with the extent, by address
    freed: dict[int, tuple[int, CallSite]] = field(default_factory=dict)
    modules: list[ProgramModule] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)  # kernels by their number
    # by stream, the estimated time at which its work ends; stream 0 is the default stream
    stream_ms: dict[int, float] = field(default_factory=lambda: {0: 0.0})
    # by event, the time of its last record; None before it
    event_ms: dict[int, float | None] = field(default_factory=dict)
    arrays: dict[int, object] = field(default_factory=dict)  # CUDA arrays by handle; see `calls.arrays`
    limits: dict[int, int] = field(default_factory=dict)
    fault: Error | None = None  # the error of a kernel that broke the device, until it is reset
    running: str = ""  # the kernel that runs; empty if none does
    deadline: float | None = None  # time at which the program is killed, by the monotonic clock
    unfinished: Unfinished = field(default_factory=Unfinished)  # work that the host has not waited for
    output: str = ""  # printf output that the program has not fetched by a synchronisation
    used_bytes: int = 0  # memory that the program has allocated
    memory_limit: int = field(default_factory=lambda: _memory_limit())  # the most that it may allocate
    handles: Iterator[int] = field(default_factory=lambda: count(FIRST_HANDLE))
    given: ProgramModule | None = None  # kernels that run in place of the program's own of the same name; None for none

    def kernel(self, number: int) -> Kernel:
        """Return a kernel by its number, or raise CudaError if there is none."""
        if number >= len(self.kernels):
            raise CudaError(Error.INVALID_RESOURCE_HANDLE)
        return self.kernels[number]

    def module(self, number: int) -> ProgramModule:
        """Return a module by its number, or raise CudaError if there is none."""
        if number >= len(self.modules):
            raise CudaError(Error.INVALID_RESOURCE_HANDLE)
        return self.modules[number]

    @property
    def launch_limit_s(self) -> float:
        """The time limit of a launch: it ends before the program is killed, so that the report has its source line."""
        left = math.inf if self.deadline is None else SHARE_OF_TIMEOUT * (self.deadline - time.monotonic())
        return min(self.options.launch_limit_s, max(LEAST_LIMIT_S, left))

    @property
    def has_device_memory(self) -> bool:
        """True if the program has memory that only kernels and copies can use."""
        return any(memory.kind == "device" for memory in self.memories.values())

    @property
    def free_bytes(self) -> int:
        """Bytes that the program may still allocate."""
        return self.memory_limit - self.used_bytes

    def allocate(self, nbytes: int, kind: str, site: CallSite) -> Allocation:
        """Allocate memory for the program, or raise CudaError if it is more than there is."""
        self.outcome.note_size(site, nbytes)
        free = self.free_bytes
        if nbytes > free:
            what = f"{nbytes:,} bytes; the simulated GPU has {free:,} bytes left on this machine"
            raise CudaError(Error.OUT_OF_MEMORY, what)
        try:
            allocation = self.device.arena.allocate(nbytes)
            if kind == "device":
                allocation.mark_unwritten()
        except OutOfMemory as error:
            raise CudaError(Error.OUT_OF_MEMORY, str(error)) from error
        except (MemoryError, OSError) as error:  # this process may have less, by a limit of the system
            raise CudaError(Error.OUT_OF_MEMORY, f"{nbytes:,} bytes; the system refuses them to gpulab") from error
        self.keep(Memory(allocation, kind, site))
        self.used_bytes += nbytes
        return allocation

    def keep(self, memory: Memory) -> None:
        """Add memory of the program. If the host may use it, too, the use by kernels is noted."""
        if memory.allocation.base not in self.memories:
            self.memories[memory.allocation.base] = memory
            self.outcome.has_seen_results |= memory.kind in SHARED_WITH_HOST
            is_watched = self.options.check and memory.kind in WATCHED
            if is_watched and isinstance(memory.allocation, SharedAllocation):
                memory.allocation.watch_use()

    def add_work(self, work: CallSite, kernel: str = "") -> None:
        """Note that a launch or an asynchronous copy has used memory, and that the host has not waited for it."""
        shared = ((each.allocation, each.site) for each in self.memories.values() if each.kind in SHARED_WITH_HOST)
        self.unfinished.add(shared, work, kernel)

    def free(self, memory: Memory, site: CallSite) -> None:
        """Free memory of the program."""
        base = memory.allocation.base
        del self.memories[base]
        self.unfinished.forget(base)
        if memory.kind == "registered":  # the host goes on using it
            self.device.arena.forget(memory.allocation)
            return
        self.used_bytes -= memory.allocation.nbytes
        self.freed[base] = memory.allocation.nbytes, site
        if len(self.freed) > MAX_FREED:
            del self.freed[next(iter(self.freed))]
        self.device.arena.free(memory.allocation)

    def find(self, address: int) -> Allocation | None:
        """Return the allocation at an address of device memory, or None."""
        return self.device.arena.find(address)

    def freed_by(self, address: int) -> CallSite | None:
        """Return the call that has freed the memory at an address, if one has."""
        found = (site for base, (nbytes, site) in self.freed.items() if base <= address < base + max(nbytes, 1))
        return next(found, None)

    def is_device_address(self, address: int) -> bool:
        """Return whether an address is in the range of device memory, allocated or not."""
        return ARENA_BASE <= address < ARENA_BASE << 8

    def described(self, address: int) -> str:
        """Return the description of a pointer that is no device memory, as a noun phrase."""
        site = self.freed_by(address)
        if site is not None:
            return f"memory that {site.function} has freed"
        if address < 4096:
            return "a null pointer"
        return "an address outside of all device memory" if self.is_device_address(address) else "a host pointer"

    def collect_leaks(self) -> None:
        """Record the memory that is not freed."""
        counts, sizes = Counter[CallSite](), Counter[CallSite]()
        for memory in self.memories.values():
            if memory.kind in ("device", "managed", "pinned"):
                counts[memory.site] += 1
                sizes[memory.site] += memory.allocation.nbytes
        self.outcome.leaks += [Leak(site, number, sizes[site]) for site, number in counts.items()]

    def reset(self) -> None:
        """Free everything, as cudaDeviceReset does."""
        if self.fault is None:
            self.collect_leaks()
        for memory in list(self.memories.values()):
            if "variable" not in memory.kind:
                self.free(memory, memory.site)
        self.arrays.clear()
        self.device.textures.clear()
        self.device.heap.rewind()
        self.event_ms.clear()
        self.stream_ms = {0: 0.0}
        self.fault = None


def _memory_limit() -> int:
    """Return the most memory of a program: a share of what the machine has left."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(int(line.split()[1]) * 1024 * MEMORY_SHARE)
    return 4 << 30
