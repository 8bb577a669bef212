"""Options of a launch, and its profile: values that every device takes and returns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .errors import Hazard, SourceLine

if TYPE_CHECKING:
    from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
    from pytest_gpulab.devices.trace_events import Trace


class KernelResources(NamedTuple):
    """Resources of a kernel as the compiler reports them; None if unknown."""

    registers: int | None = None  # 32-bit registers per thread
    shared_bytes: int | None = None  # static shared memory per block
    local_bytes: int | None = None  # local memory (stack and spills) per thread
    constant_bytes: int | None = None  # `__constant__` variables of the kernel's file


class LineCounters(NamedTuple):
    """The share of one source line in a launch's counters, under the same names."""

    where: SourceLine
    counters: Mapping[str, float]


InstructionSource = Literal["machine code", "rules", "rules for large code", ""]


class LaunchProfile(NamedTuple):
    """The profile of one launch."""

    kernel: str
    grid: tuple[int, int, int]  # extents
    block: tuple[int, int, int]  # extents
    # exact and modelled counts under Nsight Compute's names; empty on a device that does not count
    counters: Mapping[str, float] = {}
    lines: tuple[LineCounters, ...] = ()  # the same counts per source line
    # the cost model's time for the GPU model; None without `LaunchOptions.estimate` and on a real GPU
    estimated_ms: float | None = None
    bottleneck: str = ""  # the limiting resource by the cost model, in words; empty without an estimate
    occupancy: float | None = None  # theoretical occupancy, 0 to 1, if known
    resources: KernelResources = KernelResources()  # the compiler's figures
    hazards: tuple[Hazard, ...] = ()  # the hazards found
    output: str = ""  # the kernel's printf output (capped)
    kernel_occupancy: KernelOccupancy | None = None  # the theoretical occupancy in full, if known
    # the source of the counts of issued instructions: the compiler's machine code, `rules` if it cannot be read or
    # followed, `rules for large code` if it is too large; empty if nothing was counted
    instruction_source: InstructionSource = ""
    # True if no order of warps can change the results: a check (`LaunchOptions.check`) found no hazards, and
    # threads share memory by plain accesses and block barriers only
    order_free: bool = False
    # True if it is `order_free` and no contents of unwritten registers or memory can change the results: nothing
    # unwritten was read, and no register can be
    garbage_free: bool = False
    # source lines of a checked launch that may read a variable before it has a value
    unset: tuple[SourceLine, ...] = ()
    # bytes that a thread reads on average, per array argument, by its position; of a checked launch
    read_per_thread: Mapping[int, float] = {}
    # accesses that the race check left out for lack of memory, as clauses of a sentence
    unchecked: tuple[str, ...] = ()
    counted_share: float = 1.0  # the share of the grid's blocks that were counted
    # what `LaunchOptions.complete_within` limits, scaled up from the blocks that ran; infinite if unknown
    work: float = math.inf
    # True if the counted blocks issued as many instructions per block as all blocks on average
    representative: bool = True
    # True if a loop may wait for another block: it goes on until others have written to global memory
    may_wait: bool = False


Schedule = Literal["lockstep", "warps", "warps-reversed", "blocks-reversed"]


DisturbedSpace = Literal["constant", "shared"]


MAX_RECORDED_BYTES = 256 << 20  # of the values of reads; reads beyond it are neither recorded nor replaced


@dataclass(eq=False)
class RecordedReads:
    """The values that reads and atomics of shared memory return in one run, for the same reads of another run."""

    # the values, by the read, the first block that runs it, and how often they have executed it before
    values: dict[tuple[int, int, int], list[Any]] = field(default_factory=dict)
    turns: Counter[tuple[int, int]] = field(default_factory=Counter)  # how often they have executed it in this run
    is_replayed: bool = False  # True to return these values instead of recording them
    nbytes: int = 0  # the size of all values


@dataclass(eq=False)
class DisturbedRead:
    """A fault injected into one read of constant or shared memory by a warp: the read returns changed values.

    The fault may be in one write to shared memory instead, also by an atomic: then all reads of its values return
    changed ones. If no output changes, the kernel does not use the values.
    """

    # the index of the read, from 0, in the order of warps' reads; launches with the same object continue the count
    nth: int
    # the mask of flipped bits per value, at most 64 bits. `__constant__` variables that `Module.set_constant` has
    # not set keep their values
    flipped: int
    space: DisturbedSpace = "constant"
    # True to change the values of the write with this index, in the order of warps' writes; for constant memory,
    # the values at `address`, whatever reads them
    is_write: bool = False
    seen: int = 0  # the number of reads so far
    written: int = 0  # the number of writes to shared memory so far
    # the index of the write to shared memory that a lane of the changed read got its value from, also by an
    # asynchronous copy; negative if there was none
    source: int = -1
    address: int = -1  # the address that the changed read, or its first lane, reads
    # the number of reads by lanes so far, if `nth` is negative: of shared memory, or of `__constant__` variables in
    # any way
    lanes: int = 0
    # the number of them that the memory is for: they return what another thread of the block wrote, or come through
    # the constant cache
    proper: int = 0
    # True to change values, too, that are only compared; otherwise such a read returns its own values
    compared: bool = False
    # True to change, in shared memory, the value of one lane only: the first of a read, or the one that writes to
    # `address`
    single: bool = False
    recorded: RecordedReads | None = None  # receives the values of all reads of shared memory, or holds those to return


PRINT_LIMIT = 16_384  # characters per launch, because every thread may print


@dataclass(eq=False)
class WorkLimit:
    """A limit of simulated launches that does not depend on the machine's speed, unlike a time limit."""

    # the basic blocks that groups of threads may still execute, each counted more often if many blocks of the grid
    # run together, or if the kernel has slow operations. Launches with the same object continue the count; below 0
    # they end as at a time limit
    left: int


class LargerLaunch(NamedTuple):
    """A larger launch of the same kernel, the time of which is estimated from the blocks of a smaller one."""

    blocks: int  # its number of blocks
    block_work: float = 1.0  # the work of its blocks over that of the smaller launch's
    share: float = 1.0  # the share of its time to report


@dataclass(frozen=True)
class LaunchOptions:
    """Options of a simulated launch; a real GPU ignores them."""

    # all warps of a block in lockstep, or one warp after the other between barriers, first or last warp first. If
    # the result depends on it, the kernel lacks a barrier. Or, in lockstep, at most half of the blocks at once, the
    # last ones first: a kernel that waits for a block that has not started ends with a fault
    schedule: Schedule = "lockstep"
    fill: int = 0xFF  # the byte value of shared memory, local memory and registers before they are written
    # the approximate number of blocks to run; counters are scaled up. Only for cost estimates, as the results are
    # incomplete. None runs all blocks
    sample_blocks: int | None = None
    # the seed for a random choice of blocks, one per section of the grid; None takes evenly spaced blocks
    sample_seed: int | None = None
    # the limit of warp instructions; beyond it the launch raises TooMuchWork. With a sample, the other blocks run
    # without being counted, so that the results are complete. None: no limit, and the sample only
    complete_within: int | None = None
    count: bool = False  # count if all blocks run, too; sampled launches always count
    estimate: bool = False  # count and estimate the time if all blocks run, too; sampled launches always do both
    larger: LargerLaunch | None = None  # the launch to estimate; None: the one that runs
    check: bool = False  # find races and uninitialised reads
    watch: bool = False  # find races and errors at barriers within the blocks of one wave only, which the seed chooses
    # the wall-clock limit of the launch; None for no limit. A loop that changes no state is endless and is stopped
    # at once
    time_limit_s: float | None = None
    # the limit of a launch in which, for 7/8 of this time, no thread executes code that is new to it, or in loops
    # that a counter ends. None for no limit
    stall_limit_s: float | None = None
    work_limit: WorkLimit | None = None  # the limit of its work; None for no limit
    cooperative: bool = False  # keep all blocks resident, so that they may wait for each other, as in `grid.sync()`
    clustered: bool = False  # the launch asks for clusters of several blocks
    disturbed: DisturbedRead | None = None  # a fault to inject into a read of constant or shared memory
    print_limit: int = PRINT_LIMIT  # the most characters that the kernel's printf calls print
    trace: Trace | None = None  # receives the events of some blocks; needs `check`

    @property
    def is_estimated(self) -> bool:
        """True if the launch is counted and its time is estimated."""
        return self.estimate or self.sample_blocks is not None


DEFAULT_OPTIONS = LaunchOptions()

STALL_S = 2.0  # the limit of a launch without progress if its arrays have at most `STALL_SIZE` elements
STALL_SIZE = 1024  # a right kernel usually takes hundredths of a second at this size


def stall_limit_s(size: float) -> float:
    """Return the limit of a launch without progress, by its largest array or number."""
    return STALL_S * max(1.0, size / STALL_SIZE)
