"""The pytest nodes of a class: its submissions in place of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpulab.course.intake.entries import name_for_system, unreadable
from pytest_gpulab.course.intake.student_files import HandedIn, Unusable
from pytest_gpulab.course.schedule import RefusedGrader
from pytest_gpulab.grading.catalogue import Loaded
from pytest_gpulab.grading.checks import CheckGrader
from pytest_gpulab.grading.grader import provenance_of
from pytest_gpulab.reports.gradebook import natural_sort_key

from .items import CudaFile

if TYPE_CHECKING:
    from .class_run import ClassRun


class ClassFolder(pytest.Collector):
    """The submissions of a class."""

    def __init__(self, *, class_run: ClassRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._class_run = class_run

    def collect(self) -> Iterator[CudaFile]:
        """Yield a file for every submission that counts, and for those that cannot be graded."""
        for each in sorted(self._class_run.collected, key=lambda each: natural_sort_key(each.label)):
            yield HandedInFile.from_parent(
                self,
                path=self._class_run.source / each.label,
                name=each.label,
                nodeid=name_for_system(each.label),  # pytest writes it into an environment variable
                student=self._class_run.student_id(each.student),
                handed_in=each,
            )


class HandedInFile(CudaFile):
    """One submission of a class, or one that cannot be graded."""

    def __init__(self, *, handed_in: HandedIn | Unusable, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._handed_in = handed_in

    @property
    def exercise_name(self) -> str:
        """The exercise of the submission, by the file's name or its folder's."""
        return self._handed_in.exercise

    @property
    def label(self) -> str:
        """The file's path in the class, printable."""
        return self._handed_in.label

    @property
    def filename(self) -> str:
        """The student's file name, as files here may be named."""
        return name_for_system(Path(self._handed_in.label).name)

    def located(self, folder: Path) -> Path:
        """Return a copy of the submission, which may be in an archive."""
        copy = folder / self.filename
        copy.write_bytes(self.source())
        return copy

    def source(self) -> bytes:
        """Return the contents of the file, or raise OSError if it cannot be read, or is a link or a device."""
        given = self._handed_in
        if isinstance(given, Unusable):
            raise OSError(given.finding.what)
        try:
            return given.read()
        except OSError as error:
            self._handed_in = Unusable(given.student, given.exercise, given.label, unreadable(error))
            raise

    def grader(self, exercise: Loaded) -> CheckGrader:
        """Return the grader that waits for the job, or one that gives the reason why there is none."""
        if not isinstance(self._handed_in, Unusable):
            return super().grader(exercise)
        grading = self.grading
        assert grading.device_info is not None, "a device is opened before anything runs"
        provenance = provenance_of(exercise, grading.device_info, grading.settings.seed, "")
        return RefusedGrader(self._handed_in.verdict, self._handed_in.finding, provenance)
