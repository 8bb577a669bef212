"""All checks of an exercise, in order; a stage runs if those that it needs found no error."""

import traceback
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise_rules import points_by_kind
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue, Loaded, LoadedExercise, LoadedProgram

from .data import data_problems
from .defects import Defect, Report
from .gradings import grade_files
from .mutants import Progress, check_mutants
from .plans import plan_problems, source_problems, tunable_problems
from .programs import check_program
from .readme import readme_problems
from .usage import usage_problems


def check_exercise(
    catalogue: Catalogue,
    name: str,
    device: Device,
    seed: int,
    solutions: Path | None,
    mutate_s: float | None = None,
    progress: Progress = lambda line: None,
) -> Report:
    """Check an exercise, its baselines, skeleton, README and, if given, the folder of its solutions on a simulated GPU.

    Mutants of the solutions are graded for `mutate_s` seconds of wall time; None makes none.
    """
    report = Report(name)
    try:
        loaded = _loaded(catalogue, name, report)
        if isinstance(loaded, LoadedProgram):
            check_program(loaded, seed, solutions, report)
        elif loaded is not None:
            _check_kernels(loaded, device, seed, solutions, report)
            if report.errors == 0 and mutate_s is not None:
                files = sorted(solutions.glob("*.cu")) if solutions else []
                check_mutants(loaded, device, seed, files, mutate_s, report, progress)
    except MemoryError as error:  # most often an array of an exercise's function
        report.defects.append(_too_large(error, catalogue.folder / name))
    return report


def _too_large(error: MemoryError, folder: Path) -> Defect:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{frame.filename}:{frame.lineno}" for frame in frames if Path(frame.filename).parent == folder]
    what = f"there is not enough memory: {error}".rstrip(": ")
    return Defect(what, own[-1] if own else str(folder / "exercise.py"), "Make the arrays or the sizes smaller.")


def _loaded(catalogue: Catalogue, name: str, report: Report) -> Loaded | None:
    """Load an exercise and compare its README; return None if no other check can run."""
    try:
        loaded = catalogue.load(name)
    except BrokenExercise as broken:
        line = f":{broken.line}" if broken.line else ""
        where = f"{catalogue.folder / name / 'exercise.py'}{line}"
        report.defects += [Defect(problem, where) for problem in broken.problems]
        return None
    report.points = points_by_kind(loaded.exercise)
    report.defects += readme_problems(loaded.exercise, loaded.folder / "README.md")
    if all(case.hidden for case in loaded.exercise.cases):
        what = "every case is hidden: `gpulab handout` can write no copy for students"
        report.defects.append(Defect(what, str(loaded.folder / "exercise.py"), "Leave a case visible.", "warning"))
    missing = [header for header in loaded.exercise.headers if not (loaded.folder / header).is_file()]
    for header in missing:
        what = f"`headers` has {header!r}, but there is no such file beside it"
        report.defects.append(Defect(what, str(loaded.folder / "exercise.py")))
    return None if missing else loaded


def _check_kernels(loaded: LoadedExercise, device: Device, seed: int, solutions: Path | None, report: Report) -> None:
    """Check plans; then sources, data and bounds; then the grades of the exercise's files."""
    report.defects += plan_problems(loaded, device)
    if report.errors == 0:
        report.defects += tunable_problems(loaded, device)
        report.defects += source_problems(loaded, device)
        report.defects += data_problems(loaded, device, seed)
        report.defects += usage_problems(loaded, device)
    if report.errors == 0:
        grade_files(loaded, device, seed, solutions, report)
