"""The outcome of a program's run, as plain data: launches, hazards, failed calls, leaks, and how it ended."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_gpulab.devices.hardware.metrics import with_ratios
from pytest_gpulab.devices.protocol import (
    CannotSimulate,
    DeviceError,
    Hazard,
    KernelFault,
    LaunchError,
    LaunchProfile,
    SourceLine,
)

TIME_SHARE = "gpulab__time_share.pct"
POINTER_BYTES = 8
MAX_DISTINCT = 1000  # of each kind of record; more are only counted

Figures = Mapping[str, float]


@dataclass
class LaunchGroup:
    """Launches of a kernel with the same grid, block and shared memory."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    count: int = 0  # the number of launches, also of those that were refused
    ended: int = 0  # the number of launches that ended without a fault
    first: LaunchProfile | None = None  # the profile of the first launch that ended
    estimated_ms: float | None = None  # the sum of the estimated times; None if no launch was estimated
    # figures per source line, summed; shares of the time are weighted by the launches' times
    lines: dict[SourceLine, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def add(self, profile: LaunchProfile) -> None:
        """Add a launch that has ended."""
        self.ended += 1
        if self.first is None or (self.first.estimated_ms is None and profile.estimated_ms is not None):
            self.first = profile._replace(hazards=(), output="", lines=())
        if profile.estimated_ms is not None:
            self.estimated_ms = (self.estimated_ms or 0.0) + profile.estimated_ms
        for line in profile.lines:
            for name, value in line.counters.items():
                self.lines[line.where][name] += value * (profile.estimated_ms or 0.0 if name == TIME_SHARE else 1.0)


@dataclass(frozen=True)
class CallSite:
    """A call of the runtime library: function, and address in the executable."""

    function: str
    address: int


@dataclass(frozen=True)
class FailedCall:
    """A call that returned an error, by its number, and the reason in a clause, if one is known."""

    site: CallSite
    error: int
    why: str = ""


@dataclass(frozen=True)
class Leak:
    """Memory that was never freed: the call that allocated it, the number of allocations and their bytes."""

    site: CallSite
    count: int
    nbytes: int


@dataclass(frozen=True)
class LaunchFailure:
    """A launch that did not end: a fault of the kernel, a refused launch, or a feature that the simulator lacks."""

    kernel: str
    error: DeviceError
    site: CallSite

    @property
    def kind(self) -> str:
        """`fault`, `cannot simulate`, `refused` or `error`."""
        kinds = {KernelFault: "fault", CannotSimulate: "cannot simulate", LaunchError: "refused"}
        return next((kind for of, kind in kinds.items() if isinstance(self.error, of)), "error")


@dataclass(frozen=True)
class HostFault:
    """An invalid access by the host that ended the program."""

    at: CallSite  # the place of the access
    what: str = ""  # the memory, if it is the device's
    site: CallSite | None = None  # the call that has allocated or freed this memory


@dataclass(frozen=True)
class EarlyAccess:
    """An access by the host to memory that a launch or an asynchronous copy may still use."""

    at: CallSite  # the place of the access
    is_write: bool  # False for a read
    memory: CallSite  # the call that has allocated the memory
    work: CallSite  # the launch or the copy
    kernel: str  # the launched kernel; empty for a copy


@dataclass(frozen=True)
class UnwrittenCopy:
    """A copy to the host of memory of which nothing has written some bytes, or any."""

    at: CallSite  # the copy
    memory: CallSite  # the call that has allocated the memory
    nbytes: int  # the number of copied bytes
    written: int  # of these, the number that have been written
    kernel: str = ""  # the kernel with the threads that have written these bytes; empty if there are none
    threads: int = 0  # the number of its threads in a launch
    launches: int = 0  # the number of launches before the copy


@dataclass(frozen=True)
class ShareCopy:
    """A copy to the host of the first quarter or eighth of an array: of as many bytes as the array has elements."""

    at: CallSite  # the copy
    memory: CallSite  # the call that has allocated the memory
    nbytes: int  # the number of copied bytes
    total: int  # the bytes of the array, all of which have been written


@dataclass(frozen=True)
class ShortLaunch:
    """A launch that has used one element of an array per thread, and fewer than the array has."""

    at: CallSite  # the launch
    memory: CallSite  # the call that has allocated the array
    kernel: str
    threads: int
    used: int  # elements
    total: int  # elements of the array


@dataclass
class Outcome:
    """The course of a program's run."""

    # launches by kernel, grid, block and shared memory, in the order of their first launch
    launches: dict[tuple[object, ...], LaunchGroup] = field(default_factory=dict)
    # distinct hazards with their kernels
    hazards: dict[tuple[object, ...], tuple[str, Hazard]] = field(default_factory=dict)
    # distinct launches that did not end
    failures: dict[tuple[object, ...], LaunchFailure] = field(default_factory=dict)
    # distinct calls that returned an error, with how often
    failed_calls: dict[FailedCall, int] = field(default_factory=dict)
    causes: int = 0  # of these the number before the first finding of a kernel
    # memory that was not freed when the program ended or reset the device
    leaks: list[Leak] = field(default_factory=list)
    unchecked: dict[str, None] = field(default_factory=dict)  # accesses that the race check left out, as clauses
    used_events: bool = False  # True if the program has measured time with events
    # distinct accesses by the host that came before a synchronisation
    early: dict[EarlyAccess, None] = field(default_factory=dict)
    unwritten: dict[UnwrittenCopy, None] = field(default_factory=dict)  # distinct ones
    # by address of the memory: its only copy to the host, or None if it has others, or is copied as a whole
    shares: dict[int, ShareCopy | None] = field(default_factory=dict)
    # by address of an array: the launch that has used a part of it; None if a launch has used it in another way
    short: dict[int, ShortLaunch | None] = field(default_factory=dict)
    fills: dict[CallSite, int] = field(default_factory=dict)  # calls that set bytes to a small number, and the number
    pointer_sized: dict[CallSite, None] = field(default_factory=dict)  # allocations and copies of a pointer's bytes
    # by kernel with several `extern __shared__` arrays: its first launch, and the names of the arrays
    dynamic: dict[str, tuple[CallSite, list[str]]] = field(default_factory=dict)
    has_results: bool = False  # True if a launch ended while the program had memory of cudaMalloc
    # True if the host can have seen a result: in a copy, in memory that it shares with kernels, or in their output
    has_seen_results: bool = False
    host_fault: HostFault | None = None  # the access that ended the program, if one did
    missing: CallSite | None = None  # the call that ended the program, because the stand-in lacks the function
    unseen_output: int = 0  # characters that kernels printed after the program's last synchronisation
    returncode: int = 0  # as of `subprocess.Popen`: negative for a signal
    timed_out: bool = False  # True if the program was killed at its time limit
    interrupted: bool = False  # True if the program was killed because the user interrupted it
    running: str = ""  # the kernel that ran then; empty if none did

    @property
    def launch_count(self) -> int:
        """The number of launches."""
        return sum(group.count for group in self.launches.values())

    def line_figures(self) -> dict[SourceLine, Figures]:
        """Return the figures per source line of all launches."""
        total_ms = sum(group.estimated_ms or 0.0 for group in self.launches.values())
        sums: dict[SourceLine, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for group in self.launches.values():
            for where, figures in group.lines.items():
                for name, value in figures.items():
                    sums[where][name] += value / (total_ms or 1.0) if name == TIME_SHARE else value
        return {where: with_ratios(dict(figures)) for where, figures in sums.items()}

    def addresses(self) -> set[int]:
        """Return the addresses of all calls that reports name."""
        records: list[object] = [*self.failed_calls, *self.leaks, *self.failures.values(), *self.early, *self.unwritten]
        records += filter(None, (*self.shares.values(), *self.short.values(), self.host_fault))
        found = [value for record in records for value in vars(record).values()]
        found += [*self.fills, *self.pointer_sized, *(site for site, _ in self.dynamic.values()), self.missing]
        return {site.address for site in found if isinstance(site, CallSite)}

    def add_hazards(self, kernel: str, hazards: tuple[Hazard, ...]) -> None:
        """Add the hazards of a launch; one that is known is not added again."""
        for hazard in hazards:
            key = kernel, hazard.kind, hazard.where, hazard.what.partition(":")[0]
            if len(self.hazards) < MAX_DISTINCT:
                self.hazards.setdefault(key, (kernel, hazard))

    def note_arrays(self, kernel: str, site: CallSite, names: list[str]) -> None:
        """Note the `extern __shared__` arrays of a launched kernel if there are several."""
        if len(names) > 1:
            self.dynamic.setdefault(kernel, (site, names))

    def note_size(self, site: CallSite, nbytes: int) -> None:
        """Note the bytes of an allocation or a copy if a pointer has as many."""
        if nbytes == POINTER_BYTES and len(self.pointer_sized) < MAX_DISTINCT:
            self.pointer_sized.setdefault(site)

    def add_failure(self, failure: LaunchFailure) -> None:
        """Add a launch that did not end."""
        key = failure.kernel, type(failure.error), getattr(failure.error, "where", None) or str(failure.error)
        if len(self.failures) < MAX_DISTINCT:
            self.failures.setdefault(key, failure)

    def add_early(self, access: EarlyAccess) -> None:
        """Add an access that came before a synchronisation."""
        if len(self.early) < MAX_DISTINCT:
            self.early.setdefault(access)

    def add_unwritten(self, copy: UnwrittenCopy) -> None:
        """Add a copy of unwritten memory."""
        if len(self.unwritten) < MAX_DISTINCT:
            self.unwritten.setdefault(copy)

    def add_failed_call(self, failed: FailedCall) -> None:
        """Add a call that returned an error."""
        if failed in self.failed_calls or len(self.failed_calls) < MAX_DISTINCT:
            self.failed_calls[failed] = self.failed_calls.get(failed, 0) + 1
        if not self.failures and not self.hazards:
            self.causes = len(self.failed_calls)
