"""Speedups against their thresholds, and bandwidths against the roof of the device's memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_gpulab.grading.grade import Grade, Measurement
from pytest_gpulab.reports.terminal.table import timings


@dataclass(frozen=True)
class Threshold:
    """A speedup that is asked for, and whether a submission that misses it fails."""

    speedup: float
    required: bool


@dataclass(frozen=True)
class Point:
    """A submission's speedup; `low` and `high` are its interval's ends, or the speedup where there is no interval."""

    grade: Grade
    measurement: Measurement

    @property
    def speedup(self) -> float:
        """Over the baseline."""
        return self.measurement.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """Of a measurement: its own; of an estimate from a sample of the blocks: two standard errors to each side."""
        return interval_of(self.measurement)


@dataclass(frozen=True)
class Series:
    """All submissions of an exercise on one thing that is timed.

    Attributes:
        label: which of several things: a variant, another baseline.
        points: in the order of the grades.
        thresholds: ascending.
    """

    exercise: str
    label: str
    points: tuple[Point, ...]
    thresholds: tuple[Threshold, ...]

    @property
    def title(self) -> str:
        """For a reader."""
        return f"{self.exercise}, {self.label}" if self.label else self.exercise

    @property
    def estimated(self) -> bool:
        """Whether a cost model gave any of the times."""
        return any(point.measurement.estimated for point in self.points)

    @property
    def with_bandwidth(self) -> tuple[Point, ...]:
        """Those points whose bandwidth and whose roof are known."""
        return tuple(
            point
            for point in self.points
            if _is_positive(point.measurement.bandwidth_gb_s) and _is_positive(point.measurement.peak_bandwidth_gb_s)
        )


def _is_positive(figure: float | None) -> bool:
    return figure is not None and 0 < figure < math.inf


def interval_of(measurement: Measurement) -> tuple[float, float]:
    """Return between which speedups the true one lies, as far as anyone knows."""
    if measurement.low is not None and measurement.high is not None:
        return measurement.low, measurement.high
    error = 2 * (measurement.sampling_error_pct or 0.0) / 100
    return measurement.speedup * (1 - error), measurement.speedup * (1 + error)


def is_usable(measurement: Measurement) -> bool:
    """Say whether times and speedup are numbers that can be compared and drawn."""
    figures = (measurement.elapsed_ms, measurement.baseline_ms, measurement.speedup, measurement.threshold)
    return all(math.isfinite(figure) and figure > 0 for figure in (*figures, *interval_of(measurement)))


def usable_timings(grade: Grade) -> dict[str, Measurement]:
    """Return what was timed, by what sets it apart, without what cannot be compared."""
    return {label: measured for label, measured in timings(grade).items() if is_usable(measured)}


@dataclass
class _Group:
    points: list[Point] = field(default_factory=list)
    thresholds: dict[float, bool] = field(default_factory=dict)

    @property
    def sorted_thresholds(self) -> tuple[Threshold, ...]:
        return tuple(Threshold(*each) for each in sorted(self.thresholds.items()))


def all_series(grades: Iterable[Grade]) -> list[Series]:
    """Return what was timed, by exercise, the most relevant of each first."""
    groups: dict[tuple[str, str], _Group] = {}
    for grade in grades:
        for label, measurement in usable_timings(grade).items():
            group = groups.setdefault((grade.exercise, label), _Group())
            group.points.append(Point(grade, measurement))
            for speedup, required in _asked(grade, measurement):
                group.thresholds[speedup] = required or group.thresholds.get(speedup, False)
    return [
        Series(exercise, label, tuple(group.points), group.sorted_thresholds)
        for (exercise, label), group in groups.items()
    ]


def _asked(grade: Grade, timed: Measurement) -> Iterator[tuple[float, bool]]:
    for check in grade.checks:
        measured = check.measurement
        if measured is not None and _what(measured) == _what(timed):
            yield measured.threshold, check.required


def _what(measured: Measurement) -> tuple[str, float, str]:
    return measured.size, measured.elapsed_ms, measured.baseline


def roof_gb_s(points: Sequence[Point]) -> float:
    """Return what the memory transfers at most, in 1e9 bytes a second; of several devices the fastest."""
    return max(point.measurement.peak_bandwidth_gb_s or 0.0 for point in points)
