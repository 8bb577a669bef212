"""The checks of an exercise that asks for a whole program: its runs, skeleton and solutions."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_gpulab.grading.catalogue import LoadedProgram
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, instructors_code, rng_for
from pytest_gpulab.grading.programs.grader import ProgramGrader
from pytest_gpulab.program_exercise import ProgramCase, ProgramUse

from .defects import Defect, Report, of_finding, of_findings
from .gradings import grade_solutions
from .plans import solution_in

IDLE = "int main() {}\n"


def check_program(loaded: LoadedProgram, seed: int, solutions: Path | None, report: Report) -> None:
    """Add the problems of an exercise to the report; its programs run in the sandbox, as those of students do."""
    report.defects += _unrepeatable(loaded, seed)
    report.defects += _skeleton(loaded, seed, solutions)
    if report.errors == 0:
        report.defects += _idle(loaded, seed)
    if report.errors == 0 and solutions is not None:
        grade_solutions(solutions, lambda path: _graded(loaded, path, seed), report)


def _unrepeatable(loaded: LoadedProgram, seed: int) -> Iterator[Defect]:
    """Make the runs of all checks twice, and compare their input."""
    where = str(loaded.folder / "exercise.py")
    for check in checks_of(loaded.exercise):
        if not isinstance(check.subject, ProgramCase | ProgramUse):
            continue
        try:
            with instructors_code("program"):
                first, second = (check.subject.program(rng_for(seed, loaded.name, check.name)) for _ in range(2))
                is_same = (first.args, first.stdin, first.files) == (second.args, second.stdin, second.files)
        except InstructorsMistake as mistake:
            problem = of_finding(mistake.finding, where)
            yield Defect(f"{problem.what} (in {check.name})", problem.where)
            continue
        if not is_same:
            what = f"`program` of {check.name} gives other input for the same seed"
            yield Defect(what, where, "Draw every random number from the generator.")


def _skeleton(loaded: LoadedProgram, seed: int, solutions: Path | None) -> Iterator[Defect]:
    skeleton = loaded.folder / f"{loaded.name}.cu"
    if not skeleton.is_file():
        yield Defect("there is no skeleton for students", str(skeleton), "Write it, with a line GPULAB_TODO(main)")
    elif _graded(loaded, skeleton, seed).checks[0].verdict != "not started":
        instead = "Add GPULAB_TODO(main) at file scope."
        yield Defect("the skeleton counts as a finished submission", str(skeleton), instead)
    elif solutions is not None and (solution := solution_in(skeleton, solutions)):
        yield Defect(f"the skeleton has the code of the solution {solution.name}", str(skeleton), "Remove it.")


def _idle(loaded: LoadedProgram, seed: int) -> Iterator[Defect]:
    """Grade a program that does nothing: a check that it passes gives points for nothing."""
    where = str(loaded.folder / "exercise.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{loaded.name}.cu"
        path.write_text(IDLE, encoding="utf-8")
        for result in _graded(loaded, path, seed).checks:
            if result.verdict == "not gradable":
                yield of_findings(result.findings, f"{result.name} cannot be graded", where)
                return
            if result.verdict == "passed" and result.kind != "compile":
                yield Defect(f"{result.name} is passed by a program that does nothing", where)


def _graded(loaded: LoadedProgram, path: Path, seed: int) -> Grade:
    return ProgramGrader(loaded, path, seed, is_enabled=True).grade()
