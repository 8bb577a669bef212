"""One exercise's submissions as a table, in the shape of the classic table of reduction kernels.

The baseline comes first, then a row per submission; "step" is the speedup over the row above, "total" over the
baseline, the naive kernel, "next" the next tier with its points. Further measurements, such as another variant, have
rows of their own with a plus. A figure with a tilde is a cost model's estimate.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.grade import CheckResult, Grade, Measurement, Verdict

from .text import width

INCOMPLETE = "incomplete"
ESTIMATED = "~ estimated by a cost model of the GPU: an estimate, never a measurement."
_HEADERS = ("submission", "verdict", "points", "ms", "GB/s", "step", "total", "next", "occup.", "regs")
LEAST_NEEDED = ("regs", "occup.", "step", "GB/s", "shared", "best", "next")
"""Columns of tables that a narrow terminal has no room for, in the order in which they are left out."""
SHORT_NAME = 28  # columns of a submission's name
WIDE = 120  # columns of a terminal with room for `(+8 points)` instead of `(+8)`
_UNMEASURED = ("-",) * 7
_TIER = re.compile(r"speedup\[[^ \]]* ?")
WORST_FIRST: tuple[Verdict, ...] = ("failed", "not gradable", "inconclusive", "not started")


def overall_verdict(grade: Grade) -> Verdict:
    """Return a submission's verdict: its worst check's; a missed bonus does not spoil it."""
    verdicts = {check.verdict for check in grade.checks}
    return next((verdict for verdict in WORST_FIRST if verdict in verdicts), "passed")


def timings(grade: Grade) -> dict[str, Measurement]:
    """Return the timed measurements by the part of the tiers' names that distinguishes them: variant or baseline.

    The most relevant comes first. Tiers that only require more of the same time are left out.
    """
    timed: dict[str, Measurement] = {}
    for _, label, measurement in sorted(_measured(grade), key=lambda entry: entry[0]):
        if all(_timing(m) != _timing(measurement) for m in timed.values()):
            timed.setdefault(label, measurement)
    return timed


def _timing(measurement: Measurement) -> tuple[str, str, float]:
    return measurement.size, measurement.baseline, measurement.elapsed_ms


def _measured(grade: Grade) -> Iterator[tuple[tuple[bool, bool], str, Measurement]]:
    """Yield each measurement with its relevance: required tiers against the naive kernel come first."""
    for check in grade.checks:
        if check.measurement is not None:
            relevance = (check.measurement.baseline != NAIVE, not check.required)
            yield relevance, _label(check), check.measurement


def _label(check: CheckResult) -> str:
    return _TIER.sub("", check.name).rstrip("]")


def table_lines(
    grades: Sequence[Grade], expected: set[tuple[str, str]], parts: Collection[str] = frozenset()
) -> list[str]:
    """Return the table, at most `width()` columns wide, for grades of one exercise in the order of its rows.

    `expected` has (submission, check name) of failures; a verdict that rests on expected ones alone gets an asterisk.
    `parts` are submissions with checks that were not run; none of these has passed.
    """
    headers, rows = _HEADERS, list(_rows(grades, expected, parts))
    if len(grades) == 1:
        headers, rows = _without("step", headers, rows)
    for name in headers[_HEADERS.index("points") + 1 :]:
        if all(row[headers.index(name)] in ("", "-") for row in rows):
            headers, rows = _without(name, headers, rows)
    if "next" in headers and width() >= WIDE:
        at = headers.index("next")
        rows = [(*row[:at], row[at].replace(")", " points)"), *row[at + 1 :]) for row in rows]
    for name in (name for name in LEAST_NEEDED[:2] if name in headers):  # before names are cut too short
        if max(map(len, _layout(headers, rows))) > width() + max(0, max(len(row[0]) for row in rows) - SHORT_NAME):
            headers, rows = _without(name, headers, rows)
    return laid_out(headers, rows)


def _without(name: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[Any, list[Any]]:
    at = headers.index(name)
    return (*headers[:at], *headers[at + 1 :]), [(*row[:at], *row[at + 1 :]) for row in rows]


def laid_out(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a table of at most `width()` columns, two columns of text and then figures.

    Long first cells are cut. If that does not suffice, columns of `LEAST_NEEDED` are left out, and then the last ones.
    """
    lines = _layout(headers, rows)
    excess = max(map(len, lines)) - width()
    if excess > 0:
        narrow = max(len(row[0]) for row in rows) - excess
        lines = _layout(headers, [(_shortened(row[0], narrow), *row[1:]) for row in rows])
    if max(map(len, lines)) > width() and len(headers) > 2:
        dispensable = next((name for name in LEAST_NEEDED if name in headers), headers[-1])
        return laid_out(*_without(dispensable, headers, rows))
    return [line.rstrip() for line in lines]


def _layout(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from tabulate import tabulate

    # Headers as a row of their own: tabulate pads real headers by two more columns than there is width for.
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    with_headers = [headers, tuple("-" * width for width in widths), *rows]
    alignment = ("left", "left", *("right",) * (len(headers) - 2))
    text: str = tabulate(with_headers, tablefmt="plain", disable_numparse=True, colalign=alignment)
    return text.splitlines()


def _rows(grades: Sequence[Grade], expected: set[tuple[str, str]], parts: Collection[str]) -> Iterator[tuple[str, ...]]:
    entries = [entry for grade in grades for entry in _measured(grade)]
    headline = min(entries, key=lambda entry: entry[0])[1] if entries else ""
    above: dict[str, Measurement] = {}
    for label, measurement in ((label, timed) for grade in grades for label, timed in timings(grade).items()):
        above.setdefault(label, of_baseline(measurement))
    for label in sorted(above, key=lambda label: label != headline):
        row = (above[label].baseline, "baseline") if label == headline else (f"+ {label}", "")
        yield *row, "", *_figures(above[label], None)[:2], "", "1.00x", "", "", ""
    names = short_names([grade.submission for grade in grades])
    for name, grade in zip(names, grades, strict=True):
        timed = timings(grade)
        following = _next_tiers(grade)
        figures: tuple[str, ...] = _UNMEASURED
        if headline in timed:
            figures = _figures(timed[headline], above[headline], following.get(headline, "-"))
        yield name, _verdict(grade, expected, parts), f"{grade.points:g}/{grade.max_points:g}", *figures
        besides = [label for label in timed if label != headline]
        for label in besides:
            yield f"+ {label}", "", "", *_figures(timed[label], above[label], following.get(label, "-"))
        above |= timed


def _next_tiers(grade: Grade) -> dict[str, str]:
    """Return the lowest tier that was not reached, with its points, by label; extra points are not counted."""
    missed = [
        (check.measurement.threshold, f" (+{check.max_points:g})" if check.max_points else "", _label(check))
        for check in grade.checks
        if check.measurement is not None and check.verdict in ("failed", "missed")
    ]
    return {label: f"{threshold:g}x{points}" for threshold, points, label in sorted(missed, reverse=True)}


def _verdict(grade: Grade, expected: set[tuple[str, str]], parts: Collection[str]) -> str:
    if grade.submission in parts and overall_verdict(grade) == "passed":
        return INCOMPLETE
    failed = {(grade.submission, check.name) for check in grade.checks if check.verdict == "failed"}
    return overall_verdict(grade) + ("*" if failed and failed <= expected else "")


def of_baseline(measurement: Measurement) -> Measurement:
    """Return the baseline's own row, from a measurement against it."""
    bandwidth = measurement.bandwidth_gb_s
    if bandwidth is not None:
        bandwidth *= measurement.elapsed_ms / measurement.baseline_ms
    return replace(
        measurement, elapsed_ms=measurement.baseline_ms, speedup=1.0, bandwidth_gb_s=bandwidth, bottleneck=""
    )


def _figures(measurement: Measurement, above: Measurement | None, following: str = "") -> tuple[str, ...]:
    tilde = "~" if measurement.estimated else ""
    bandwidth, occupancy, registers = measurement.bandwidth_gb_s, measurement.occupancy, measurement.registers
    comparable = above is not None and above.size == measurement.size and above.estimated == measurement.estimated
    return (
        tilde + three_digits(measurement.elapsed_ms),
        "n/a" if bandwidth is None else tilde + three_digits(bandwidth),
        f"{tilde}{above.elapsed_ms / measurement.elapsed_ms:.2f}x" if above is not None and comparable else "-",
        f"{tilde}{measurement.speedup:.2f}x",
        following,
        "n/a" if occupancy is None else f"{occupancy:.0%}",
        "n/a" if registers is None else str(registers),
    )


def three_digits(value: float) -> str:
    """Return a number with three significant digits."""
    if not math.isfinite(value) or value <= 0:
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def short_names(submissions: Sequence[str]) -> list[str]:
    """Return the paths without their common folder and `.cu`."""
    paths = [PurePosixPath(name).with_suffix("") for name in submissions]
    levels = zip(*(path.parent.parts for path in paths), strict=False)
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return [str(PurePosixPath(*path.parts[shared:])) for path in paths]


def _shortened(name: str, width: int) -> str:
    width = max(width, len(_HEADERS[0]))
    return name if len(name) <= width else f"..{name[len(name) - width + 2 :]}"
