"""Grades of the exercise's own files: baselines, skeleton and solutions."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.expected import Expectation, ExpectationError, Expectations, is_met
from pytest_gpulab.grading.grade import CheckResult, Grade
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits

from .defects import Defect, Report, of_findings
from .plans import baselines_of, skeleton_of, started

EXPECTED_FILE = "expected.toml"
EQUAL = 0.99  # estimates of one kernel, from two samples of blocks, may differ by 1 %

GradeFile = Callable[[Path], Grade]


def grade_files(loaded: LoadedExercise, device: Device, seed: int, solutions: Path | None, report: Report) -> None:
    """Grade the baselines and the solutions; add the problems and the time to the report."""

    def graded(path: Path) -> list[CheckResult]:
        return _timed(path, lambda path: Grader(loaded, path, device, seed).grade(), report)

    for path in baselines_of(loaded).values():
        if path.is_file():
            own = {f"speedup[{tier.name}]" for tier in loaded.exercise.speed if tier.baseline == path.name}
            report.defects += _of_baseline(path, graded(path), own)
    if report.errors == 0:
        report.defects += _of_started_skeleton(loaded, device, seed)
    if solutions is not None and report.errors == 0:  # their speed is relative to a baseline
        report.defects += _of_solutions(solutions, graded)


def grade_solutions(solutions: Path, grade: GradeFile, report: Report) -> None:
    """Grade solutions that are whole programs; add the problems and the time to the report."""
    report.defects += _of_solutions(solutions, lambda path: _timed(path, grade, report))


def _timed(path: Path, grade: GradeFile, report: Report) -> list[CheckResult]:
    begin_s = _processor_s()
    results = list(grade(path).checks)
    report.times_s.append(_processor_s() - begin_s)
    report.graded.append(path.name)
    return results


def _processor_s() -> float:
    """Return the processor time of this process and of its ended children, which are compilers and programs."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _of_baseline(path: Path, results: list[CheckResult], own: Collection[str]) -> Iterator[Defect]:
    """Yield what a baseline fails, and the speed checks over itself, by their names in `own`, that it may pass."""
    for result in results:
        if result.kind in ("compile", "correct", "safe") and result.verdict != "passed":
            yield of_findings(result.findings, f"the baseline fails {result.name}", str(path))
            return  # the other checks mostly fail for the same reason
    for result in results:
        speed = result.measurement
        if result.name in own and speed is not None and speed.speedup >= EQUAL * speed.threshold:
            yield Defect(f"the baseline itself earns {result.name}", str(path), "Raise the threshold.")
        if result.kind in ("uses", "speedup") and result.verdict == "not gradable":
            source = path.parent / "exercise.py" if result.is_exercises_mistake else path
            yield of_findings(result.findings, f"{result.name} cannot be graded", str(source))


def _of_started_skeleton(loaded: LoadedExercise, device: Device, seed: int) -> Iterator[Defect]:
    """Grade the skeleton without its GPULAB_TODO lines: it must not be a solution."""
    skeleton = skeleton_of(loaded)
    with started(skeleton) as copy:
        grader = Grader(loaded, copy, device, seed, limits=CaseLimits(smallest="none", causes=False))
        required = (check for check in checks_of(loaded.exercise) if check.required)
        is_solution = all(grader.run(check).verdict == "passed" for check in required)  # most fail the first case
    if is_solution:
        what = "the skeleton without its GPULAB_TODO lines passes every required check: students get a solution"
        yield Defect(what, str(skeleton), "Empty the bodies of its kernels.")


def _of_solutions(folder: Path, graded: Callable[[Path], list[CheckResult]]) -> Iterator[Defect]:
    expected_file = folder / EXPECTED_FILE
    if not folder.is_dir():
        yield Defect("there are no solutions", str(folder), "Name the folder as the exercise.", level="warning")
        return
    if not expected_file.is_file():
        yield Defect("there are no expected verdicts for the solutions", str(expected_file), level="warning")
        return
    try:
        expectations = Expectations.load([expected_file])
    except ExpectationError as error:
        yield Defect(str(error).removeprefix(f"{expected_file}: "), str(expected_file))
        return
    for path in sorted(folder.glob("*.cu")):
        expected = expectations.for_path(path)
        if expected is None:
            yield Defect(f"{path.name} has no entry", str(expected_file), level="warning")
        else:
            results = graded(path)
            names = {result.name for result in results}
            for unknown in (name for name in expected.fails if "*" not in name and name not in names):
                what = f"{path.name} should fail {unknown!r}, a check that the exercise does not have"
                yield Defect(what, str(expected_file))
            yield from _unlike(path, expected, results)
            if expected.points is None:
                earned = f"points = {sum(result.points for result in results):g}"
                what = f"{path.name} states no points"
                yield Defect(what, str(expected_file), f"Write {earned}, if that is right.", level="warning")


def _unlike(path: Path, expected: Expectation, results: list[CheckResult]) -> Iterator[Defect]:
    """Yield the differences between a solution's results and its expected verdict, points included."""
    found = [defect for result in results if (defect := _unlike_result(path, expected, result)) is not None]
    points = sum(result.points for result in results)
    if not found and expected.points is not None and abs(points - expected.points) > 1e-9:
        found = [Defect(f"the file earns {points:g} points but should earn {expected.points:g}", str(path))]
    yield from found


def _unlike_result(path: Path, expected: Expectation, result: CheckResult) -> Defect | None:
    wanted = expected.fails.get(result.name)
    codes = [found.code for found in result.findings]
    is_dependent = bool(result.findings and result.findings[0].because)  # that check is reported itself
    if wanted is None and result.verdict in ("failed", "not gradable") and not is_dependent:
        return of_findings(result.findings, f"{result.name} is {result.verdict} but should pass", str(path))
    if wanted is not None and not (result.verdict == "failed" and is_met(wanted, codes)):
        return Defect(f"{result.name} is {result.verdict} but should fail with {wanted!r}", str(path))
    return None
