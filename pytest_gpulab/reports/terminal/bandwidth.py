"""Table for `-v`: memory bandwidth that each step reaches, and the CPU's time for the same work."""

from collections.abc import Iterator, Mapping, Sequence

from pytest_gpulab.grading.grade import Grade, Measurement

from .table import laid_out, of_baseline, short_names, three_digits, timings
from .text import wrapped

COPY_SHARE = 0.9
"""Share of the peak bandwidth that a plain copy reaches (measured on an H200: tests/gpu/proof/ladder.py)."""
_HEADERS = ("submission", "size", "ms", "GB/s", "of peak", "caches", "CPU ms")
_CPU_NOTE = "CPU ms: the exercise's reference on the CPU, measured once, for information only."
_Row = tuple[str, str, Measurement]  # the name that it shows, the measurement's label, the measurement


def bandwidth_lines(grades: Sequence[Grade]) -> list[str]:
    """Return the table of one exercise; empty where no bandwidth is known."""
    names, timed = short_names([grade.submission for grade in grades]), [timings(grade) for grade in grades]
    reference_ms = _reference_ms(timed)
    rows = [*_baselines(timed), *(row for name, each in zip(names, timed, strict=True) for row in _rows(name, each))]
    measured = [measurement for each in timed for measurement in each.values()]
    peaks = sorted({m.peak_bandwidth_gb_s for m in measured if m.peak_bandwidth_gb_s is not None})
    gb_s = " or ".join(f"{peak:.0f}" for peak in peaks)
    notes = [f"of peak: share of {gb_s} GB/s; a plain copy reaches about {COPY_SHARE:.0%} on an H200."]
    notes += [_CPU_NOTE] if reference_ms else []
    lines = [(name, *_figures(measurement), reference_ms.get(label, "n/a")) for name, label, measurement in rows]
    return [*laid_out(_HEADERS, lines), *(part for note in notes for part in wrapped(note))] if rows and peaks else []


def _reference_ms(timed: Sequence[Mapping[str, Measurement]]) -> dict[str, str]:
    """Return the CPU time by label, from whichever grade has it: it belongs to the exercise."""
    known = {label: m.reference_ms for each in timed for label, m in each.items() if m.reference_ms is not None}
    return {label: three_digits(took_ms) for label, took_ms in known.items()}


def _baselines(timed: Sequence[Mapping[str, Measurement]]) -> Iterator[_Row]:
    seen: dict[str, Measurement] = {}
    for each in timed:
        for label, measurement in each.items():
            seen.setdefault(label, measurement)
    for label, measurement in seen.items():
        baseline = measurement.baseline
        named = label.removeprefix(baseline.removesuffix(".cu")).strip()  # a second baseline is its own label
        yield f"{baseline} {named}".strip(), label, of_baseline(measurement)


def _rows(name: str, timed: Mapping[str, Measurement]) -> Iterator[_Row]:
    for index, (label, measurement) in enumerate(timed.items()):
        yield f"+ {label}" if index else name, label, measurement


def _figures(measurement: Measurement) -> tuple[str, ...]:
    tilde = "~" if measurement.estimated else ""
    reached, peak = measurement.bandwidth_gb_s, measurement.peak_bandwidth_gb_s
    return (
        measurement.size,
        tilde + three_digits(measurement.elapsed_ms),
        "n/a" if reached is None else tilde + three_digits(reached),
        "n/a" if reached is None or peak is None else f"{tilde}{reached / peak:.0%}",
        measurement.caches or "-",
    )
