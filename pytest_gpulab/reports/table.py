"""One exercise's submissions as a table, in the shape of the classic table of reduction kernels.

The baseline comes first, then a row a submission; "step" is the speedup over the row above, "total" over the naive
kernel. A figure with a tilde is a cost model's estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

from pytest_gpulab.grading.grade import CheckResult, Grade, Measurement, Verdict

WIDTH = 100
NAIVE = "naive.cu"
_HEADERS = ("submission", "verdict", "points", "ms", "GB/s", "step", "total", "needs", "occup.", "regs")
_UNMEASURED = ("-",) * 7
_WORST_FIRST: tuple[Verdict, ...] = ("failed", "not gradable", "inconclusive", "not started")


def overall_verdict(grade: Grade) -> Verdict:
    """Return a submission's verdict: its worst check's; a missed bonus does not spoil it."""
    verdicts = {check.verdict for check in grade.checks}
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "passed")


def headline_measurement(grade: Grade) -> Measurement | None:
    """Return the measurement for the submission's row: if possible against the naive kernel, for a required tier."""
    measured = [check for check in grade.checks if check.measurement is not None]
    return max(measured, key=_relevance).measurement if measured else None


def _relevance(check: CheckResult) -> tuple[bool, bool]:
    assert check.measurement is not None
    return check.measurement.baseline == NAIVE, check.required


def table_lines(grades: Sequence[Grade], expected: set[tuple[str, str]]) -> list[str]:
    """Return the table, at most `WIDTH` columns wide, for grades of one exercise in the order of its rows.

    Args:
        grades: see above.
        expected: (submission, check name) of the failures that are expected; a verdict that rests on those
            alone gets an asterisk.
    """
    rows = list(_rows(grades, expected))
    lines = _layout(rows)
    excess = max(map(len, lines)) - WIDTH
    if excess > 0:
        room = max(len(row[0]) for row in rows) - excess
        lines = _layout([(_shortened(row[0], room), *row[1:]) for row in rows])
    return [line.rstrip() for line in lines]


def _layout(rows: Sequence[tuple[str, ...]]) -> list[str]:
    from tabulate import tabulate

    # Headers as a row of their own: tabulate pads real headers by two more columns than there is room for.
    widths = [max(map(len, column)) for column in zip(_HEADERS, *rows, strict=True)]
    with_headers = [_HEADERS, tuple("-" * width for width in widths), *rows]
    alignment = ("left", "left", *("right",) * 8)
    text: str = tabulate(with_headers, tablefmt="plain", disable_numparse=True, colalign=alignment)
    return text.splitlines()


def _rows(grades: Sequence[Grade], expected: set[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    measurements = [headline_measurement(grade) for grade in grades]
    above = next((_of_baseline(m) for m in measurements if m is not None and m.baseline == NAIVE), None)
    if above is not None:
        yield f"{NAIVE} (baseline)", "", "", *_figures(above, None)[:2], "", "1.00x", "", "", ""
    names = short_names([grade.submission for grade in grades])
    for name, grade, measurement in zip(names, grades, measurements, strict=True):
        failed = {(grade.submission, check.name) for check in grade.checks if check.verdict == "failed"}
        asterisk = "*" if failed and failed <= expected else ""
        points = f"{grade.points:g}/{grade.max_points:g}"
        yield name, overall_verdict(grade) + asterisk, points, *_figures(measurement, above)
        above = measurement or above


def _of_baseline(measurement: Measurement) -> Measurement:
    """Return the baseline's own row, as far as a measurement against it tells."""
    bandwidth = measurement.bandwidth_gb_s
    if bandwidth is not None:
        bandwidth *= measurement.elapsed_ms / measurement.baseline_ms
    return Measurement(
        measurement.size, measurement.baseline_ms, measurement.baseline_ms, 1.0, 1.0, measurement.estimated, bandwidth
    )


def _figures(measurement: Measurement | None, above: Measurement | None) -> tuple[str, ...]:
    if measurement is None:
        return _UNMEASURED
    tilde = "~" if measurement.estimated else ""
    bandwidth, occupancy, registers = measurement.bandwidth_gb_s, measurement.occupancy, measurement.registers
    comparable = above is not None and above.size == measurement.size and above.estimated == measurement.estimated
    against_naive = measurement.baseline == NAIVE
    return (
        tilde + _three_digits(measurement.elapsed_ms),
        "n/a" if bandwidth is None else tilde + _three_digits(bandwidth),
        f"{tilde}{above.elapsed_ms / measurement.elapsed_ms:.2f}x" if above is not None and comparable else "-",
        f"{tilde}{measurement.speedup:.2f}x" if against_naive else "-",
        f"{measurement.threshold:g}x" if against_naive else "-",
        "n/a" if occupancy is None else f"{occupancy:.0%}",
        "n/a" if registers is None else str(registers),
    )


def _three_digits(value: float) -> str:
    if not math.isfinite(value) or value <= 0:
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def short_names(submissions: Sequence[str]) -> list[str]:
    """Return the paths without what all of them share: their common folder and `.cu`."""
    paths = [PurePosixPath(name).with_suffix("") for name in submissions]
    levels = zip(*(path.parent.parts for path in paths), strict=False)
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return [str(PurePosixPath(*path.parts[shared:])) for path in paths]


def _shortened(name: str, room: int) -> str:
    room = max(room, len(_HEADERS[0]))
    return name if len(name) <= room else f"..{name[len(name) - room + 2 :]}"
