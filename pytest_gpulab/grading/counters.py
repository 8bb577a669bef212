"""Hardware counters of kernels, as plain data, with Nsight Compute's names and units."""

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpulab.devices.hardware import metrics
from pytest_gpulab.devices.protocol import LaunchProfile

METRICS = (
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.per_cycle_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "smsp__sass_branch_targets.sum",
    "smsp__sass_branch_targets_threads_divergent.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
)
"""The metrics requested from Nsight Compute; the simulated GPU counts some of them."""
_UNITS = {metric.name: metric.unit for metric in metrics.METRICS}


@dataclass(frozen=True)
class Counter:
    """A counter: name, such as `sm__warps_active.avg.pct_of_peak_sustained_active`, value and unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class KernelCounters:
    """The hardware counters of one launch, as far as this GPU has them."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counters: tuple[Counter, ...]

    def value(self, name: str) -> float | None:
        """Return a counter's value, or None if the GPU lacks the counter."""
        return next((counter.value for counter in self.counters if counter.name == name), None)


def counted(profiles: Iterable[LaunchProfile]) -> tuple[KernelCounters, ...]:
    """Return the `METRICS` of each different launch, as far as the device counts them."""
    launches = (KernelCounters(profile.kernel, profile.grid, profile.block, _counters(profile)) for profile in profiles)
    return first_of_each(launch for launch in launches if launch.counters)


def first_of_each(launches: Iterable[KernelCounters]) -> tuple[KernelCounters, ...]:
    """Return the launches without repetitions of kernel, grid and block."""
    found: dict[tuple[object, ...], KernelCounters] = {}
    for launch in launches:
        found.setdefault((launch.kernel, launch.grid, launch.block), launch)
    return tuple(found.values())


def _counters(profile: LaunchProfile) -> tuple[Counter, ...]:
    return tuple(
        Counter(name, float(profile.counters[name]), _UNITS[name])
        for name in METRICS
        if name in profile.counters and name in _UNITS
    )
