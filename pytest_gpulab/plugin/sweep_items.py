"""The pytest nodes of a sweep: a file at each combination of its tunables' values, with one item that measures it."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.compilation.swept_source import CannotSweep, swept
from pytest_gpulab.grading.grade import CheckResult

from .items import BrokenItem, CheckItem, CudaFile

_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
_TOO_SLOW = ("too-slow", "inconclusive")  # findings of a measured kernel


class SweptFile(CudaFile):
    """A copy of a file with other values of its tunables."""

    def __init__(self, *, exercise: LoadedExercise, check: Check, swept: dict[str, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.exercise, self.check, self.swept = exercise, check, swept

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the one item."""
        name, nodeid = self.check.name, f"{self.nodeid}::{self.check.name}"
        of_check: dict[str, Any] = {"exercise": self.exercise, "check": self.check, "position": 0, "of": 1}
        yield SweepItem.from_parent(self, name=name, nodeid=nodeid, **of_check)


class SweepItem(CheckItem):
    """A measurement at one combination: it fails if the kernel is wrong there, and not if it is slow."""

    def noted(self, result: CheckResult) -> CheckResult:
        """Return the result without points; a measured speedup passes."""
        is_measured = result.measurement is not None and all(found.code in _TOO_SLOW for found in result.findings)
        if is_measured:
            result = replace(result, verdict="passed", findings=())
        return super().noted(replace(result, points=0.0, max_points=0.0))


def swept_files(
    parent: CudaFile, exercise: LoadedExercise, checks: tuple[Check, ...]
) -> Iterator[pytest.Collector | pytest.Item]:
    """Yield a file per combination, or one item with the reason why there are none.

    Each is measured by the first speed check of the exercise.
    """
    sweep = parent.grading.settings.sweep
    try:
        check = _measuring(exercise, checks, tuple(sweep))
        for values in product(*sweep.values()):
            given = dict(zip(sweep, values, strict=True))
            words = ",".join(f"{name}={value}" for name, value in given.items())
            path = _new_folder(parent.config) / parent.path.name
            path.write_bytes(swept(parent.source(), given))
            of_file: dict[str, Any] = {"exercise": exercise, "check": check, "swept": given}
            yield SweptFile.from_parent(parent, path=path, nodeid=f"{parent.nodeid}[{words}]", **of_file)
    except (CannotSweep, OSError) as error:
        yield BrokenItem.from_parent(parent, name="sweep", explanation=str(error))


def _measuring(exercise: LoadedExercise, checks: tuple[Check, ...], names: tuple[str, ...]) -> Check:
    known = [tunable.name for tunable in exercise.exercise.tunables]
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise CannotSweep(f"the exercise {exercise.name} has no tunable {name}: {has}")
    check = next((check for check in checks if check.kind == "speedup"), None)
    if check is None:
        raise CannotSweep(f"the exercise {exercise.name} has no speed check: nothing is measured")
    return check


def _new_folder(config: pytest.Config) -> Path:
    """Return an empty folder that lasts as long as the session."""
    if _FOLDER not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="gpulab-sweep-")
        config.add_cleanup(folder.cleanup)
        config.stash[_FOLDER] = Path(folder.name)
    return Path(tempfile.mkdtemp(dir=config.stash[_FOLDER]))
