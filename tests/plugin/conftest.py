"""A fresh course for every test, graded on the real simulated GPU.

The inner pytest runs in this process. It throws away the modules that it imports, which NumPy, NVRTC and matplotlib (if
part of it was there before) do not survive: `_warm_imports` loads them before.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from importlib import import_module
from pkgutil import iter_modules

import pytest
from course import BROKEN, EXERCISE, NAIVE, RIGHT, WRONG, Course
from without_plots import no_plots as no_plots


@pytest.fixture(scope="session")
def _warm_imports(tmp_path_factory: pytest.TempPathFactory) -> None:
    import tabulate  # noqa: F401

    import pytest_gpulab.course.executors.processes
    import pytest_gpulab.course.intake.roster
    import pytest_gpulab.course.intake.submissions
    import pytest_gpulab.course.schedule
    import pytest_gpulab.plugin.class_run
    import pytest_gpulab.plugin.parallel_run
    import pytest_gpulab.reports.files.calibration
    import pytest_gpulab.reports.files.json_report  # noqa: F401
    from pytest_gpulab import plugin
    from pytest_gpulab.devices import open_device
    from pytest_gpulab.grading import correctness, diagnosis
    from pytest_gpulab.grading.catalogue import Catalogue
    from pytest_gpulab.grading.grader import Grader
    from pytest_gpulab.reports import terminal
    from pytest_gpulab.reports.gradebook import Gradebook, result_properties
    from pytest_gpulab.reports.instructor.page import page

    for package in (plugin, correctness, diagnosis, terminal):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    folder = tmp_path_factory.mktemp("warm") / "twice"
    folder.mkdir()
    for name, text in (("exercise.py", EXERCISE), ("naive.cu", NAIVE), ("twice.cu", RIGHT)):
        (folder / name).write_text(text)
    exercise = Catalogue(folder.parent).load("twice")
    device, _ = open_device("sim")
    grade = Grader(exercise, folder / "twice.cu", device, 0).grade()
    device.close()
    gradebook = Gradebook()
    for position, check in enumerate(grade.checks):
        gradebook.add(result_properties(replace(grade, checks=(check,)), position))
    page(gradebook, datetime.now(timezone.utc))


@pytest.fixture
def course(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, _warm_imports: None) -> Course:
    """A fresh course, graded as at a terminal: pytest prints more where it sees that it runs in CI.

    Without the width that readline, once loaded, puts into the environment.
    """
    for variable in ("CI", "BUILD_NUMBER", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    return Course(pytester)


@pytest.fixture
def school(course: Course) -> Course:
    """A course with four students: ann is right, bob wrong, cem has a syntax error, dora handed in notes."""
    course.write("handed_in/ann/twice.cu", RIGHT)
    course.write("handed_in/bob/twice/mine.cu", WRONG)
    course.write("handed_in/cem/twice.cu", BROKEN)
    course.write("handed_in/dora/notes.txt", "it was too hard")
    return course


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that tests share which are about what becomes of grades: the school's are made once for all of them."""
    return f"--gpulab-store={tmp_path_factory.mktemp('kept') / 'grades.sqlite'}"
