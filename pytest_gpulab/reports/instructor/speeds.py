"""Speedups against their thresholds, and bandwidths against the roof of the device's memory. Pure."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_gpulab.grading.grade import Grade, Measurement
from pytest_gpulab.reports.terminal.table import timings


@dataclass(frozen=True)
class Threshold:
    """A required speedup, and whether a submission that misses it fails."""

    speedup: float
    required: bool


@dataclass(frozen=True)
class Point:
    """A submission's speedup."""

    grade: Grade
    measurement: Measurement

    @property
    def speedup(self) -> float:
        """Speedup over the baseline."""
        return self.measurement.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """The interval: a measurement's own; two standard errors for an estimate from sampled blocks."""
        return interval_of(self.measurement)


@dataclass(frozen=True)
class Series:
    """All submissions of an exercise on one timed variant and baseline."""

    exercise: str
    label: str  # the variant or baseline where several are timed
    points: tuple[Point, ...]  # in the order of the grades
    thresholds: tuple[Threshold, ...]  # ascending

    @property
    def title(self) -> str:
        """Title for readers."""
        return f"{self.exercise}, {self.label}" if self.label else self.exercise

    @property
    def estimated(self) -> bool:
        """True if a cost model estimated any of the times."""
        return any(point.measurement.estimated for point in self.points)

    @property
    def with_bandwidth(self) -> tuple[Point, ...]:
        """The points with a known bandwidth and peak."""
        return tuple(
            point
            for point in self.points
            if _is_positive(point.measurement.bandwidth_gb_s) and _is_positive(point.measurement.peak_bandwidth_gb_s)
        )


def _is_positive(figure: float | None) -> bool:
    return figure is not None and 0 < figure < math.inf


def interval_of(measurement: Measurement) -> tuple[float, float]:
    """Return the interval of a speedup."""
    if measurement.low is not None and measurement.high is not None:
        return measurement.low, measurement.high
    error = 2 * (measurement.sampling_error_pct or 0.0) / 100
    return measurement.speedup * (1 - error), measurement.speedup * (1 + error)


def is_usable(measurement: Measurement) -> bool:
    """Return whether times and speedup are finite and positive."""
    figures = (measurement.elapsed_ms, measurement.baseline_ms, measurement.speedup, measurement.threshold)
    return all(math.isfinite(figure) and figure > 0 for figure in (*figures, *interval_of(measurement)))


def usable_timings(grade: Grade) -> dict[str, Measurement]:
    """Return the drawable measurements by variant and baseline."""
    return {label: measured for label, measured in timings(grade).items() if is_usable(measured)}


def all_series(grades: Iterable[Grade]) -> list[Series]:
    """Return the series of each exercise, the most relevant first."""
    points: dict[tuple[str, str], list[Point]] = {}
    thresholds: dict[tuple[str, str], dict[float, bool]] = {}
    for grade in grades:
        for label, measurement in usable_timings(grade).items():
            points.setdefault((grade.exercise, label), []).append(Point(grade, measurement))
            found = thresholds.setdefault((grade.exercise, label), {})
            for speedup, required in _required_speedups(grade, measurement):
                found[speedup] = required or found.get(speedup, False)
    in_order = {key: tuple(Threshold(*each) for each in sorted(found.items())) for key, found in thresholds.items()}
    return [Series(*key, tuple(points[key]), in_order[key]) for key in points]


def _required_speedups(grade: Grade, timed: Measurement) -> Iterator[tuple[float, bool]]:
    for check in grade.checks:
        measured = check.measurement
        if measured is not None and _what(measured) == _what(timed):
            yield measured.threshold, check.required


def _what(measured: Measurement) -> tuple[str, float, str]:
    return measured.size, measured.elapsed_ms, measured.baseline
