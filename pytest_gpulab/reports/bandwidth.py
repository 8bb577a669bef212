"""How much of the memory's bandwidth each step reaches, and how long the CPU took for the same: a table for `-v`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_gpulab.grading.grade import Grade, Measurement
from pytest_gpulab.reports.table import laid_out, of_baseline, short_names, three_digits, timings

COPY_SHARE = 0.9
"""Of the memory's peak bandwidth: what a plain copy reaches (measured on an H200: tests/gpu/proof/ladder.py)."""
_HEADERS = ("submission", "size", "ms", "GB/s", "of peak", "caches", "CPU ms")
_CPU_NOTE = "CPU ms: the exercise's reference on the CPU, once: for information, it decides nothing."


def bandwidth_lines(grades: Sequence[Grade]) -> list[str]:
    """Return a table of what one exercise's submissions were timed with; empty where no bandwidth is known."""
    names = short_names([grade.submission for grade in grades])
    rows = [
        *_baselines(grades),
        *(row for name, grade in zip(names, grades, strict=True) for row in _rows(name, grade)),
    ]
    measured = [measurement for grade in grades for measurement in timings(grade).values()]
    peaks = sorted({m.peak_bandwidth_gb_s for m in measured if m.peak_bandwidth_gb_s is not None})
    gb_s = " or ".join(f"{peak:.0f}" for peak in peaks)
    notes = [f"of peak: of {gb_s} GB/s, of which a plain copy reaches some {COPY_SHARE:.0%} on an H200."]
    notes += [_CPU_NOTE] if any(m.reference_ms is not None for m in measured) else []
    return [*laid_out(_HEADERS, rows), *notes] if rows and peaks else []


def _baselines(grades: Sequence[Grade]) -> Iterator[tuple[str, ...]]:
    seen: dict[str, Measurement] = {}
    for grade in grades:
        for label, measurement in timings(grade).items():
            seen.setdefault(label, measurement)
    for label, measurement in seen.items():
        yield f"{measurement.baseline} {label}".strip(), *_figures(of_baseline(measurement))


def _rows(name: str, grade: Grade) -> Iterator[tuple[str, ...]]:
    for index, (label, measurement) in enumerate(timings(grade).items()):
        yield f"+ {label}" if index else name, *_figures(measurement)


def _figures(measurement: Measurement) -> tuple[str, ...]:
    tilde = "~" if measurement.estimated else ""
    reached, peak = measurement.bandwidth_gb_s, measurement.peak_bandwidth_gb_s
    return (
        measurement.size,
        tilde + three_digits(measurement.elapsed_ms),
        "n/a" if reached is None else tilde + three_digits(reached),
        "n/a" if reached is None or peak is None else f"{tilde}{reached / peak:.0%}",
        measurement.caches or "-",
        "n/a" if measurement.reference_ms is None else three_digits(measurement.reference_ms),
    )
