"""The page of a sweep: for each file a table and a figure of speedup and occupancy over the tunables' values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.reports.pages import environment
from pytest_gpulab.reports.terminal.sweep import FIGURES, cells, fastest_of, file_of, in_order, measurement_of
from pytest_gpulab.reports.terminal.table import ESTIMATED

from .svg import FAINT, SERIES, Drawing, Sheet, in_page_style, inline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sweep_page(grades: Sequence[Grade], created: datetime) -> str:
    """Return the page of a sweep: a grade per file and combination of values, and the time of writing in UTC."""
    sheet, parts = Sheet(), []
    for number, members in enumerate(in_order(grades)):
        best = fastest_of(members)
        svg = inline(_drawing(members, f"sweep{chr(97 + number % 26)}"), sheet) if best else ""
        rows = [[*map(str, grade.swept.values()), *cells(grade, grade is best)] for grade in members]
        headers = [*members[0].swept, "result", *FIGURES]
        parts.append({"name": file_of(members[0]), "headers": headers, "rows": rows, "svg": svg})
    device = grades[0].provenance.device
    is_estimated = any(measured.estimated for grade in grades if (measured := measurement_of(grade)))
    values: dict[str, Any] = {"parts": parts, "device": device, "created": environment.moment(created)}
    note = ESTIMATED if is_estimated else ""
    return environment.rendered("sweep.html.jinja", more_style=sheet.text, note=note, **values)


@in_page_style
def _drawing(members: Sequence[Grade], key: str) -> Drawing:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 5.2))
    speedups, occupancies = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    across, *others = members[0].swept
    ticks = sorted({grade.swept[across] for grade in members})
    for number, line in enumerate(_lines(members, others)):
        _draw(speedups, occupancies, line, [ticks.index(grade.swept[across]) for grade in line], number, others)
    speedups.axhline(1, color=FAINT, linewidth=1, linestyle="--")
    speedups.set(ylabel="speedup over the baseline")
    speedups.set_ylim(bottom=0)
    occupancies.set(xlabel=across, ylabel="occupancy, %", ylim=(0, 105))
    occupancies.set_xticks(range(len(ticks)), [str(value) for value in ticks])
    if others:
        speedups.legend(title=others[0], frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    best = fastest_of(members)
    words = ", ".join(f"{name} = {value}" for name, value in best.swept.items()) if best else ""
    return Drawing(figure, key, f"Sweep of {file_of(members[0])}", f"Speedup and occupancy; fastest at {words}.")


def _lines(members: Sequence[Grade], others: Sequence[str]) -> list[list[Grade]]:
    """Return the measured grades, a list per value of the second tunable."""
    measured = [grade for grade in members if measurement_of(grade)]
    keys = sorted({grade.swept[others[0]] for grade in measured}) if others else [None]
    return [[grade for grade in measured if key is None or grade.swept[others[0]] == key] for key in keys]


def _draw(
    speedups: Axes, occupancies: Axes, line: Sequence[Grade], places: Sequence[int], number: int, others: Sequence[str]
) -> None:
    found = [measured for grade in line if (measured := measurement_of(grade))]
    style: Any = {"marker": "osD^vP"[number % 6], "color": SERIES[number % len(SERIES)], "markersize": 6}
    label = str(line[0].swept[others[0]]) if others else None
    speedups.plot(places, [measured.speedup for measured in found], label=label, **style)
    occupancies.plot(places, [100 * (measured.occupancy or 0) for measured in found], **style)
