"""Tables for `-v`: properties of the devices, occupancy of the kernels, hardware counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, TypeVar

from pytest_gpulab.grading.grade import Grade, Provenance

from .table import laid_out, short_names, timings
from .text import wrapped

if TYPE_CHECKING:
    from pytest_gpulab.grading.grade import KernelCounters, KernelOccupancy

_HEADERS = (
    *("submission", "kernel", "block", "regs", "shared", "blocks", "warps", "occup.", "limited by", "best"),
    "achieved",
)
_MAX_KERNEL = 14
_SHORT = {"registers": "regs", "shared memory": "shared"}  # as in the other columns
COUNTERS = {
    "ns": ("gpu__time_duration.sum",),
    "occup.": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "warps": ("sm__warps_active.avg.per_cycle_elapsed",),
    "DRAM": ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
    "bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    "branches": ("smsp__sass_branch_targets.sum",),
    "divergent": ("smsp__sass_branch_targets_threads_divergent.sum",),
    "conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
}
_UNKNOWN = "n/a"
_PREFIXES = {3: "k", 6: "M", 9: "G", 12: "T"}
_Kernel = TypeVar("_Kernel", "KernelOccupancy", "KernelCounters")
_NOTES = (
    (
        ("warps", "blocks, warps: resident per multiprocessor"),
        ("regs", "regs: per thread"),
        ("shared", "shared: bytes per block"),
    ),
    (("best", "best: the block size with the highest occupancy, which need not be the fastest"),),
    (("achieved", "achieved: estimated share of the warps that are resident on average"),),
)
"""Lines of notes on columns."""


def device_tables(grades: Sequence[Grade]) -> Iterator[tuple[str, list[str]]]:
    """Yield each device's name and a line per property; a device of several processes appears once."""
    devices: dict[tuple[str, ...], Provenance] = {}
    for grade in grades:
        provenance = grade.provenance
        which = (provenance.details.get(label, "") for label in ("UUID", "PCI address"))  # NVML's name may be missing
        devices.setdefault((provenance.device, *which), provenance)
    for (name, *_), provenance in devices.items():
        rows = {"architecture": provenance.architecture, "compiler": provenance.compiler, **provenance.details}
        indent = max(map(len, rows)) + 2
        lines = (wrapped(text or "n/a", label.ljust(indent), " " * indent) for label, text in rows.items())
        yield name, list(chain.from_iterable(lines))


def occupancy_lines(grades: Sequence[Grade]) -> list[str]:
    """Return the occupancy table of one exercise's timed kernels; empty where there are none."""
    names = short_names([grade.submission for grade in grades])
    each = list(zip(names, map(_kernels, grades), strict=True))
    rows = [
        (name if is_first else "", *_figures(kernel))
        for name, kernels in each
        for is_first, kernel in _numbered(kernels)
    ]
    more = [line for name, kernels in each for kernel in kernels for line in _more_memory(name, kernel)]
    architectures = sorted({kernel.architecture for grade in grades for kernel in _kernels(grade)})
    table = laid_out(_HEADERS, rows) if rows else []
    return [*table, f"For {' and '.join(architectures)}.", *_notes(table[0]), *more] if rows else []


def _notes(header: str) -> list[str]:
    """Return the notes on the columns of a table's header."""
    shown = ["; ".join(words for column, words in line if column in header.split()) for line in _NOTES]
    lines = [line for line in shown if line]
    return [part for line in lines for part in wrapped(f"{line}{'.' if line == lines[-1] else ';'}")]


def counter_lines(grades: Sequence[Grade], with_simulated: bool) -> list[str]:
    """Return the table of counters of one exercise's timed launches, perhaps also the simulated GPU's; else nothing."""
    names = short_names([grade.submission for grade in grades])
    launches = [
        (name if is_first else "", launch)
        for name, grade in zip(names, grades, strict=True)
        for is_first, launch in _numbered(_launches(grade, with_simulated))
    ]
    columns = {
        column: counters
        for column, counters in COUNTERS.items()
        if any(_sum(launch, counters) != _UNKNOWN for _, launch in launches)
    }
    rows = [
        (name, _abridged(launch.kernel), str(prod(launch.grid)), *(_sum(launch, names) for names in columns.values()))
        for name, launch in launches
    ]
    if not columns:
        return []
    table = laid_out(("submission", "kernel", "blocks", *columns), rows)
    legend = (f"{column}: {' + '.join(counters)}" for column, counters in columns.items() if column in table[0].split())
    return [*table, *(part for line in legend for part in wrapped(line))]


def counter_notes(grades: Iterable[Grade]) -> list[str]:
    """Return the reasons why there are no counters although `--gpulab-ncu` was given."""
    return sorted({m.counters_note for grade in grades for m in timings(grade).values() if m.counters_note})


def _launches(grade: Grade, with_simulated: bool) -> list[KernelCounters]:
    shown = (measured for measured in timings(grade).values() if with_simulated or not measured.estimated)
    return list(dict.fromkeys(launch for measured in shown for launch in measured.counters))


def _sum(launch: KernelCounters, names: Sequence[str]) -> str:
    """Return the sum of counters in a few characters, with a percent sign where it is a share."""
    found = [counter for counter in launch.counters if counter.name in names]
    if len(found) < len(names):
        return _UNKNOWN
    total = sum(counter.value for counter in found)
    if found[0].unit == "%":
        return f"{total:.1f}%"
    exponent = max((power for power in _PREFIXES if total >= 10**power), default=0)
    return f"{total / 10**exponent:.4g}{_PREFIXES.get(exponent, '')}"


def _abridged(name: str) -> str:
    return name if len(name) <= _MAX_KERNEL else f"{name[: _MAX_KERNEL - 2]}.."


def _kernels(grade: Grade) -> list[KernelOccupancy]:
    return list(dict.fromkeys(kernel for measured in timings(grade).values() for kernel in measured.kernels))


def _numbered(kernels: Sequence[_Kernel]) -> Iterator[tuple[bool, _Kernel]]:
    return ((index == 0, kernel) for index, kernel in enumerate(kernels))


def _more_memory(submission: str, kernel: KernelOccupancy) -> list[str]:
    """Return uses of local and constant memory as text."""
    used = {
        "bytes of local memory per thread (arrays, spilled registers)": kernel.local_bytes,
        "bytes of `__constant__` variables": kernel.constant_bytes,
    }
    sizes = " and ".join(f"{nbytes} {what}" for what, nbytes in used.items() if nbytes)
    return wrapped(f"{submission}, {kernel.kernel}: {sizes}.") if sizes else []


def _figures(kernel: KernelOccupancy) -> tuple[str, ...]:
    suggested = kernel.suggested_block_threads
    return (
        _abridged(kernel.kernel),
        str(kernel.block_threads),
        "n/a" if kernel.registers is None else str(kernel.registers),
        str(kernel.shared_bytes),
        str(kernel.active_blocks),
        str(kernel.active_warps),
        f"{kernel.occupancy:.0%}",
        ", ".join(_SHORT.get(supply, supply) for supply in kernel.limited_by) or "n/a",
        "n/a" if suggested is None else str(suggested),
        "n/a" if kernel.achieved is None else f"~{kernel.achieved:.0%}",
    )
