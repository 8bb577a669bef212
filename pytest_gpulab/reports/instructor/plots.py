"""The report's figures: score distributions, speedups against their thresholds, bandwidths against the memory's roof.

Each function returns a `Drawing` and writes nothing. Every meaning of a colour has a sign or a position as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pytest_gpulab.reports.class_statistics import BINS, Scores
from pytest_gpulab.reports.terminal.bandwidth import COPY_SHARE
from pytest_gpulab.reports.terminal.table import short_names, three_digits
from pytest_gpulab.reports.terminal.text import visible

from .speeds import Point, Series
from .svg import FAINT, INK, PAPER, SERIES, Drawing, in_page_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Names = Mapping[str, str]
"""Names of students by their ids, or of marks by their submissions."""

WIDTH_IN = 8.6
MOST_NAMED = 20  # more names would be too small to read
MANY = 150  # beyond it, marks would cover each other


def _figure(height_in: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in))
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=0.08, right=0.98, bottom=0.55 / height_in, top=1 - 0.3 / height_in, wspace=0.25, hspace=0.8
    )
    return figure, [each for row in axes for each in row]


@in_page_style
def score_plot(distributions: Sequence[Scores]) -> Drawing:
    """Draw a histogram of the points for each distribution, in tenths, on one scale."""
    columns = len(distributions) if len(distributions) <= 4 else 3
    rows = -(-len(distributions) // columns)
    figure, axes = _figure(2.3 * rows, rows, columns)
    top = max(max(each.histogram) for each in distributions)
    for axis, each in zip(axes, distributions, strict=False):
        _histogram(axis, each, top)
    for axis in axes[len(distributions) :]:
        axis.set_visible(False)
    figure.supxlabel("points earned, % of those possible", fontsize=11)
    figure.supylabel("how many", fontsize=11)
    summary = "; ".join(f"{each.title}: median {100 * each.quartiles[1]:.0f} %" for each in distributions)
    return Drawing(figure, "scores", "Distribution of scores", f"Histograms in tenths of the points. {summary}.")


def _histogram(axis: Axes, scores: Scores, top: int) -> None:
    width, middle = 100 / BINS, 100 * scores.quartiles[1]
    heights = scores.histogram
    centres = [width * (tenth + 0.5) for tenth in range(BINS)]
    axis.bar(centres, heights, width=0.88 * width, color=SERIES[0])
    box: Any = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
    for centre, height in zip(centres, heights, strict=True):
        if height:
            axis.annotate(
                str(height), (centre, height), (0, 1.5), textcoords="offset points", ha="center", va="bottom",
                fontsize=9, color=INK, bbox=box,
            )  # fmt: skip
    tall = max(heights[min(int(middle / width), BINS - 1)], 0.08 * top)  # no number stands below the top of a bar
    axis.vlines(middle, 0, tall, color=PAPER, linewidth=5)  # in grey the dashes and a bar look alike
    axis.vlines(middle, 0, tall, color=SERIES[1], linestyle="--", linewidth=2)
    _headed(axis, f"{_short(scores.title, 18)}\nn = {len(scores.shares)}")
    axis.set(xlim=(0, 100), ylim=(0, 1.18 * top), xticks=(0, 25, 50, 75, 100))
    axis.locator_params(axis="y", integer=True, nbins=4)


@in_page_style
def speed_plot(series: Series, key: str, names: Names) -> Drawing:
    """Draw all speedups of a series on a logarithmic scale: by name if they are few, else from the slowest on."""
    called = _called(series.points, names)
    few = len(series.points) <= MOST_NAMED
    points = list(series.points) if few else sorted(series.points, key=lambda point: point.speedup)
    figure, (axis,) = _figure(0.75 + 0.27 * len(points) if few else 3.4)
    places = list(range(len(points), 0, -1) if few else range(1, len(points) + 1))
    if few:
        _by_name(axis, points, places, [_short(called[point.grade.submission], 26) for point in points])
    else:
        _by_rank(axis, points, places)
    tips = _plotted(axis, series, list(zip(points, places, strict=True)), few, key, called)
    _speedup_scale(axis, series, "x" if few else "y")
    _thresholds(axis, series, few)
    _headed(
        axis,
        f"{_short(series.title, 60)}, size {_short(points[0].measurement.size, 24)}{' (estimates)' * series.estimated}",
        18 if few else 6,
    )
    return Drawing(figure, key, f"Speedups of {series.title}", _description(series), tips)


def _headed(axis: Axes, text: str, pad: float = 6) -> None:
    axis.set_title(text, loc="left", fontsize=11, fontweight="bold", pad=pad)


def _short(text: str, most: int) -> str:
    """Return text cut to that many letters."""
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 2]}.."


def _description(series: Series) -> str:
    speedups = [point.speedup for point in series.points]
    reached = "; ".join(
        f"{sum(speedup >= each.speedup for speedup in speedups)} reach {each.speedup:g}x" for each in series.thresholds
    )
    return (
        f"{len(speedups)} submissions from {min(speedups):.2f}x to {max(speedups):.2f}x over the baseline; {reached}."
    )


def _tip(point: Point, called: Names) -> str:
    low, high = point.interval
    between = f", between {low:.2f}x and {high:.2f}x" if low < high else ""
    return f"{called[point.grade.submission]}: {point.speedup:.2f}x{between}"


def _plotted(
    axis: Axes, series: Series, placed: Sequence[tuple[Point, int]], few: bool, key: str, called: Names
) -> dict[str, list[str]]:
    """Draw the marks, hollow for estimates, diamonds near a threshold; return their tooltips."""
    tips: dict[str, list[str]] = {}
    size = 6.0 if few else 4.0 if len(placed) <= MANY else 1.8
    for near, marker, colour in ((False, "o", SERIES[0]), (True, "D", SERIES[3])):
        group = [(point, place) for point, place in placed if _is_near(point, series) == near]
        across, speedups = [place for _, place in group], [point.speedup for point, _ in group]
        gid = f"{key}-{marker}"
        axis.plot(
            *((speedups, across) if few else (across, speedups)), gid=gid, linestyle="none", marker=marker,
            markersize=size, color=colour, markerfacecolor=PAPER if series.estimated else colour,
        )  # fmt: skip
        tips[gid] = [_tip(point, called) for point, _ in group]
    return tips


def _is_near(point: Point, series: Series) -> bool:
    low, high = point.interval
    return any(low <= each.speedup <= high for each in series.thresholds)


def _by_name(axis: Axes, points: Sequence[Point], places: Sequence[int], labels: Sequence[str]) -> None:
    intervals = [point.interval for point in points]
    axis.hlines(places, [low for low, _ in intervals], [high for _, high in intervals], color=SERIES[0], linewidth=2)
    axis.set_yticks(places, labels)
    axis.set(ylim=(0.3, len(points) + 0.9), xlabel="speedup over the baseline (logarithmic)")


def _by_rank(axis: Axes, points: Sequence[Point], places: Sequence[int]) -> None:
    intervals = [point.interval for point in points]
    axis.vlines(places, [low for low, _ in intervals], [high for _, high in intervals], color=SERIES[0], linewidth=1.2)
    axis.set(
        xlim=(0, len(points) + 1), xlabel="submissions, from the slowest to the fastest", ylabel="speedup (logarithmic)"
    )


def _called(points: Sequence[Point], names: Names) -> dict[str, str]:
    """Return the student's name or id by submission; without a student the path without the common part."""
    submissions = [point.grade.submission for point in points]
    short = dict(zip(submissions, short_names(submissions), strict=True))
    return {grade.submission: names.get(grade.student) or grade.student or short[grade.submission]
            for grade in (point.grade for point in points)}  # fmt: skip


def _speedup_scale(axis: Axes, series: Series, which: Literal["x", "y"]) -> None:
    _logarithmic(axis, which, "{:g}x")
    thresholds = [threshold.speedup for threshold in series.thresholds]
    ends = [*thresholds, 1.0, *(end for point in series.points for end in point.interval)]
    (axis.set_xlim if which == "x" else axis.set_ylim)(min(ends) / 1.12, max(ends) * 1.12)


def _logarithmic(axis: Axes, which: Literal["x", "y"], words: str) -> None:
    """Put ticks at 1, 2 and 5 of each decade, with a grid; `words` formats their values."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ticks = axis.xaxis if which == "x" else axis.yaxis
    (axis.set_xscale if which == "x" else axis.set_yscale)("log")
    ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ticks.set_major_formatter(FuncFormatter(lambda value, _: words.format(value)))
    ticks.set_minor_formatter(NullFormatter())
    axis.grid(axis=which, color=FAINT, linewidth=0.4, alpha=0.5)


def _thresholds(axis: Axes, series: Series, few: bool) -> None:
    """Draw the thresholds: solid where a miss fails, dashed for a bonus."""
    for each in series.thresholds:
        line: Any = {"color": SERIES[1], "linestyle": "-" if each.required else "--", "linewidth": 1.3}
        text: Any = {"color": SERIES[1], "fontsize": 9, "textcoords": "offset points", "annotation_clip": False}
        if few:
            axis.axvline(each.speedup, **line)
            place: Any = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
            axis.annotate(f"{each.speedup:g}x", (each.speedup, 1), (0, 2), **place, **text)
        else:
            axis.axhline(each.speedup, **line)
            place = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "center"}
            axis.annotate(f"{each.speedup:g}x", (1, each.speedup), (4, 0), **place, **text)


@in_page_style
def roofline_plot(all_of_them: Sequence[Series], names: Names) -> Drawing | None:
    """Draw each series' bandwidths, ascending, below the peak of the device's memory; None where none is known."""
    shown = [series for series in all_of_them if series.with_bandwidth]
    if not shown:
        return None
    figure, (axis,) = _figure(3.9)
    tips: dict[str, Sequence[str]] = {}
    for number, series in enumerate(shown):
        points = sorted(series.with_bandwidth, key=_gb_s)
        gid = f"roof-points-{number}"
        axis.plot(_across(number, len(points)), [_gb_s(point) for point in points], gid=gid, linestyle="none",
                  marker="osD^vP"[number % 6], markersize=4 if len(points) > MOST_NAMED else 6,
                  color=SERIES[number % len(SERIES)])  # fmt: skip
        called = _called(points, names)
        tips[gid] = [f"{_tip(point, called)}, {three_digits(_gb_s(point))} GB/s" for point in points]
    measured = (point.measurement for series in shown for point in series.with_bandwidth)
    roof = max(each.peak_bandwidth_gb_s or 0.0 for each in measured)  # the highest of several devices
    _roof(axis, roof, len(shown))
    labels = [(_short(part, 18) for part in (series.exercise, series.label) if part) for series in shown]
    axis.set_xticks(range(len(shown)), list(map("\n".join, labels)))
    axis.set_xlabel("exercise, each from the slowest to the fastest submission")
    best = [max(map(_gb_s, series.with_bandwidth)) for series in shown]
    summary = "; ".join(f"{s.title}: best {gb_s / roof:.0%} of the peak" for s, gb_s in zip(shown, best, strict=True))
    return Drawing(figure, "roofline", "Bandwidth against the memory's roof", f"Peak {roof:.0f} GB/s. {summary}.", tips)


def _gb_s(point: Point) -> float:
    return point.measurement.bandwidth_gb_s or 0.0


def _across(column: int, count: int) -> list[float]:
    """Return positions of sorted points across a column 0.76 wide."""
    return [column] if count == 1 else [column - 0.38 + 0.76 * place / (count - 1) for place in range(count)]


def _roof(axis: Axes, roof_gb_s: float, columns: int) -> None:
    _logarithmic(axis, "y", "{:g}")
    axis.axhline(roof_gb_s, color=INK, linewidth=2)
    axis.axhline(COPY_SHARE * roof_gb_s, color=INK, linewidth=1, linestyle="--")
    place = columns - 0.5
    label = f"peak {roof_gb_s:.0f} GB/s; dashed: a plain copy"  # above the peak, where no mark can be
    axis.text(place, 1.06 * roof_gb_s, label, ha="right", va="bottom", fontsize=10, color=INK)
    low, _ = axis.get_ylim()
    axis.set(xlim=(-0.5, place), ylim=(low, 1.9 * roof_gb_s), ylabel="GB/s (minimal bytes over time)")
