"""What is known of the devices that graded, and how the submissions' kernels fill them: tables for `-v`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pytest_gpulab.grading.grade import Grade, KernelOccupancy, Provenance
from pytest_gpulab.reports.table import WIDTH, laid_out, short_names, timings

_HEADERS = (
    "submission", "kernel", "block", "regs", "shared", "blocks", "warps", "occup.", "limited by", "suggested"
)  # fmt: skip
_MAX_KERNEL = 18
_SHORT = {"registers": "regs", "shared memory": "shared"}  # as in the other columns
_NOTES = (
    "blocks, warps: what a multiprocessor holds at a time; regs: a thread; shared: bytes a block;",
    "suggested: threads of the block with the highest occupancy, which need not be the fastest.",
)


def device_tables(grades: Sequence[Grade]) -> Iterator[tuple[str, list[str]]]:
    """Yield each device's name and a line for each fact; a device that several processes opened comes once."""
    devices: dict[tuple[str, str], Provenance] = {}
    for grade in grades:
        provenance = grade.provenance
        devices.setdefault((provenance.device, provenance.details.get("UUID", "")), provenance)
    for (name, _), provenance in devices.items():
        rows = {"architecture": provenance.architecture, "compiler": provenance.compiler, **provenance.details}
        yield name, _two_columns(rows)


def _two_columns(rows: dict[str, str]) -> list[str]:
    indent = max(map(len, rows)) + 2
    return [
        line
        for label, text in rows.items()
        for line in textwrap.wrap(
            text or "n/a", WIDTH, initial_indent=label.ljust(indent), subsequent_indent=" " * indent
        )
    ]


def occupancy_lines(grades: Sequence[Grade]) -> list[str]:
    """Return a table of the kernels that one exercise's submissions were timed with; empty where there are none."""
    names = short_names([grade.submission for grade in grades])
    rows = [
        (name if is_first else "", *_figures(kernel))
        for name, grade in zip(names, grades, strict=True)
        for is_first, kernel in _numbered(_kernels(grade))
    ]
    architectures = sorted({kernel.architecture for grade in grades for kernel in _kernels(grade)})
    return [*laid_out(_HEADERS, rows), f"For {' and '.join(architectures)}.", *_NOTES] if rows else []


def _kernels(grade: Grade) -> list[KernelOccupancy]:
    return list(dict.fromkeys(kernel for measured in timings(grade).values() for kernel in measured.kernels))


def _numbered(kernels: Sequence[KernelOccupancy]) -> Iterator[tuple[bool, KernelOccupancy]]:
    return ((index == 0, kernel) for index, kernel in enumerate(kernels))


def _figures(kernel: KernelOccupancy) -> tuple[str, ...]:
    name, suggested = kernel.kernel, kernel.suggested_block_threads
    return (
        name if len(name) <= _MAX_KERNEL else f"{name[: _MAX_KERNEL - 2]}..",
        str(kernel.block_threads),
        "n/a" if kernel.registers is None else str(kernel.registers),
        str(kernel.shared_bytes),
        str(kernel.active_blocks),
        str(kernel.active_warps),
        f"{kernel.occupancy:.0%}",
        ", ".join(_SHORT.get(supply, supply) for supply in kernel.limited_by) or "n/a",
        "n/a" if suggested is None else str(suggested),
    )
