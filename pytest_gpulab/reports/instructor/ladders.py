"""Ladders: several submissions of one exercise in one folder, each meant to be faster than the one above.

Pure. The columns are those of the classic slides on parallel reduction: time, bandwidth, the speedup of the step, and
the speedup of all steps together, which here starts from the exercise's baseline.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_gpulab.grading.grade import Grade, Measurement
from pytest_gpulab.reports.terminal.table import of_baseline, overall_verdict, short_names

from .speeds import usable_timings


@dataclass(frozen=True)
class Step:
    """A row of the table."""

    name: str  # the file's name, or the baseline's
    grade: Grade | None  # None for the baseline
    measurement: Measurement  # its time, measured or estimated
    step: float | None  # speedup over the row above; None for the first one and where the two cannot be compared

    @property
    def verdict(self) -> str:
        """The submission's label; empty for the baseline."""
        return "" if self.grade is None else overall_verdict(self.grade)


@dataclass(frozen=True)
class Ladder:
    """The steps of one exercise; `label` names the variant or baseline where several are timed."""

    exercise: str
    label: str
    steps: tuple[Step, ...]

    @property
    def size(self) -> str:
        """Problem size of the first step as text."""
        return self.steps[0].measurement.size

    @property
    def estimated(self) -> bool:
        """True if a cost model estimated the times."""
        return any(step.measurement.estimated for step in self.steps)


def ladders(grades: Iterable[Grade]) -> Iterator[Ladder]:
    """Yield the ladders, one per timed variant and baseline."""
    groups: dict[tuple[str, str, str], list[Grade]] = {}
    for grade in grades:
        folder = str(PurePosixPath(grade.submission).parent)
        groups.setdefault((grade.exercise, grade.student, folder), []).append(grade)
    for (exercise, _, _), members in groups.items():
        labels = dict.fromkeys(label for grade in members for label in usable_timings(grade))
        found = (_ladder(exercise, label, members) for label in labels)
        yield from (ladder for ladder in found if len(ladder.steps) > 2)


def _ladder(exercise: str, label: str, grades: Sequence[Grade]) -> Ladder:
    names = short_names([grade.submission for grade in grades])
    timed = [(name, grade, usable_timings(grade)[label]) for name, grade in zip(names, grades, strict=True)
             if label in usable_timings(grade)]  # fmt: skip
    above = of_baseline(timed[0][2])
    steps = [Step(above.baseline, None, above, None)]
    for name, grade, measurement in timed:
        comparable = (above.size, above.estimated) == (measurement.size, measurement.estimated)
        step = above.elapsed_ms / measurement.elapsed_ms if comparable else None
        steps.append(Step(name, grade, measurement, step))
        above = measurement
    return Ladder(exercise, label, tuple(steps))
