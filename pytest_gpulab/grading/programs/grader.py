"""The grader of a submission that is a whole program."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from pytest_gpulab.devices.programs.confinement.running import ProgramOutput
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu
from pytest_gpulab.grading.catalogue import LoadedProgram
from pytest_gpulab.grading.checks import Check, CheckGrader, checks_of, correct_name, visible_first
from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance
from pytest_gpulab.grading.grader import provenance_of
from pytest_gpulab.grading.plans.prepare import InstructorsMistake
from pytest_gpulab.program_exercise import ProgramCase, ProgramSafe, ProgramUse

from .judging import CODES_OF_KIND, CONCEPT, problems, ungradable
from .runs import ProgramRun, ProgramRuns

COMPILER = "nvcc and g++"
MAX_PRINTED = 4000  # characters of the program's output in a report


class ProgramGrader(CheckGrader):
    """A grader of one program, in this process: the program itself has a process and a sandbox of its own.

    Unless the instructor allows native code of submissions (`is_enabled`), no check can be graded. `gpu` is the
    modelled GPU, as `open_device` takes it.
    """

    def __init__(
        self,
        exercise: LoadedProgram,
        path: Path,
        seed: int,
        is_enabled: bool,
        label: str | None = None,
        gpu: str | None = None,
    ) -> None:
        self._loaded, self._label = exercise, str(path) if label is None else label
        self._runs = ProgramRuns(exercise, path, gpu, seed, is_enabled)
        self._provenance = provenance_of(exercise, _described(gpu), seed, self._runs.sha256)

    @property
    def provenance(self) -> Provenance:
        """The inputs that the grade depends on."""
        return self._provenance

    def grade(self) -> Grade:
        """Grade all checks of the exercise, and remove the build."""
        try:
            results = tuple(self.run(check) for check in checks_of(self._loaded.exercise))
        finally:
            self.close()
        return Grade(self._label, self._loaded.name, results, self._provenance)

    def run(self, check: Check) -> CheckResult:
        """Return the result of one check; errors of the submission and of the exercise are findings in it."""
        begin_s = time.perf_counter()
        try:
            result = self._judge_of(check)()
        except InstructorsMistake as mistake:
            result = check.result("not gradable", (mistake.finding,))
        except BuildFailed as failed:
            is_own = check.kind == "compile" or not self._runs.lacks_build
            found = failed.finding if is_own else because_of("compile", failed.finding)
            result = check.result(failed.verdict, (found,))
        except MemoryError:
            what = "There is not enough memory to run the program's kernels"
            result = check.result("not gradable", (finding("no-memory", what),))
        return replace(result, duration_s=time.perf_counter() - begin_s)

    def close(self) -> None:
        """Remove the files of the build."""
        self._runs.close()

    def _judge_of(self, check: Check) -> Callable[[], CheckResult]:
        subject = check.subject
        if isinstance(subject, ProgramCase):
            return partial(self._correct, check, subject)
        if isinstance(subject, ProgramSafe):
            return partial(self._safe, check, subject)
        if isinstance(subject, ProgramUse):
            return partial(self._uses, check, subject)
        return partial(self._compile, check)

    def _compile(self, check: Check) -> CheckResult:
        self._runs.build()
        return check.result("passed")

    def _correct(self, check: Check, case: ProgramCase) -> CheckResult:
        run = self._run_of(case)
        if found := ungradable(run):
            return check.result("not gradable", found)
        found = problems(run)
        output = run.output if found else replace(run.output, stdout=b"")  # a right answer is no news
        return check.result("failed" if found else "passed", found, printed=_printed(output))

    def _run_of(self, case: ProgramCase) -> ProgramRun:
        return self._runs.run(correct_name(case), case.program)

    def _safe(self, check: Check, safe: ProgramSafe) -> CheckResult:
        """Fail on any mistake of the kind, and for a program that does nothing.

        A wrong program must be correct in a case in which it launches a kernel: some cases need none.
        """
        cases = visible_first(self._loaded.exercise.cases)
        found: dict[tuple[str, str], Finding] = {}  # the same line fails at many sizes, each with its own numbers
        for case in cases:
            run = self._run_of(case)
            for each in run.findings:
                if each.code in CODES_OF_KIND[safe.kind]:
                    found.setdefault((each.code, each.where), replace(each, hidden=case.hidden))
        if found:
            return check.result("failed", tuple(found.values()))
        wrong = [(case, result) for case in cases if (result := self._unless_passed(check, case)) is not None]
        ungraded = [result for _, result in wrong if result.verdict == "not gradable"]
        failed = {case.name for case, _ in wrong}
        if ungraded or (wrong and not any(self._run_of(c).outcome.launches for c in cases if c.name not in failed)):
            return (ungraded or [wrong[0][1]])[0]
        clauses = dict.fromkeys(clause for case in cases for clause in self._run_of(case).outcome.unchecked)
        if safe.kind == "race" and clauses:
            return check.result("not gradable", tuple(finding("not-checked", f"Not checked: {c}") for c in clauses))
        return check.result("passed")

    def _unless_passed(self, check: Check, case: ProgramCase) -> CheckResult | None:
        """Return the result of a check that needs a case which did not pass; else None."""
        run = self._run_of(case)
        ungraded = ungradable(run)
        found = ungraded or problems(run)
        if not found:
            return None
        dependent = because_of(correct_name(case), found[0], case.hidden)
        return check.result("not gradable" if ungraded else "failed", (dependent,))

    def _uses(self, check: Check, use: ProgramUse) -> CheckResult:
        """Judge only correct programs: a wrong one may use the concept without need."""
        for case in visible_first(self._loaded.exercise.cases):
            if (wrong := self._unless_passed(check, case)) is not None:
                return wrong
        run = self._runs.run(check.name, use.program)
        if found := ungradable(run):
            return check.result("not gradable", found)
        found = tuple(_as_concept(each, use) for each in problems(run))
        is_missed = not use.required and all(each.code == CONCEPT for each in found)
        return check.result("passed" if not found else "missed" if is_missed else "failed", found)


@lru_cache
def _described(gpu: str | None) -> DeviceInfo:
    return SimulatedDevice(modelled_gpu(gpu) if gpu else None).info._replace(compiler=COMPILER)


def _as_concept(found: Finding, use: ProgramUse) -> Finding:
    """Return wrong output of a `uses` check as the concept that is not used."""
    if found.code != "wrong-result":
        return found
    return replace(found, code=CONCEPT, what=f"{use.title}: {found.what[:1].lower()}{found.what[1:]}")


def _printed(output: ProgramOutput) -> str:
    """Return the beginning of a program's output."""
    text = b"\n".join(filter(None, (output.stdout.rstrip(), output.stderr.rstrip()))).decode(errors="replace")
    return (
        text if len(text) <= MAX_PRINTED else f"{text[:MAX_PRINTED]}\n... and {len(text) - MAX_PRINTED} more characters"
    )
