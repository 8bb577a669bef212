"""Mutants of solutions: small mistakes, one at a time. A mutant that passes all checks shows a gap in the cases."""

import operator
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pytest_gpulab.devices.compiler.nvrtc import compile_ptx
from pytest_gpulab.devices.protocol import Device, DeviceError
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.compilation.builds import variants_of
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits, TimeLimits

from .defects import Defect, Report
from .mutator import Mutant, mutants
from .plans import text_of

LIMITS = CaseLimits(TimeLimits(case_s=2.0, file_s=10.0, has_builds=False), smallest="none", causes=False)
MOST_PER_SOLUTION = 200
_NO_CODE = re.compile(r"\.section\s+\.debug.*|\.loc[^\n]*|\.file[^\n]*|//[^\n]*|\$L__tmp\d+:?|\s+", re.S)
# a declaration of shared memory: a larger array is no mistake, a smaller one has no gap
_ARRAY = re.compile(r"(extern )?__shared__ ")

Status = Literal["refused", "same", "killed", "survived"]
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant."""

    # `refused` if it does not compile, `same` if the compiler makes the same code of it, `killed` if a check of its
    # results fails, else `survived`
    status: Status
    by: str = ""  # the failed check
    code: str = ""  # the code of its finding


def check_mutants(
    loaded: LoadedExercise,
    device: Device,
    seed: int,
    solutions: Sequence[Path],
    limit_s: float,
    report: Report,
    progress: Progress,
) -> None:
    """Grade mutants of solutions on a simulated GPU; add the survivors and their number to the report.

    It begins no mutant after `limit_s` seconds of wall time. Solutions that fail a check of their results have no
    mutants.
    """
    counts, end_s = Counter[Status](), time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"{loaded.name}.cu"
        found = {path: outcome_of(text_of(path), loaded, device, copy, None, seed) for path in solutions}
        correct = [path for path, outcome in found.items() if outcome.status == "survived"]
        originals = {path: list(machine_code(text_of(path), loaded)) for path in correct}
        chosen = list(_in_turns(correct, seed))
        if not chosen:
            report.defects.append(Defect("there is no correct solution to mutate", str(loaded.folder), level="warning"))
            return
        for number, (path, mutant) in enumerate(chosen):
            if time.monotonic() > end_s:
                break
            survivors = f"survivors: {counts['survived']}"
            progress(f"{loaded.name}: {number} of {len(chosen)} mutants graded; {survivors}")
            status = outcome_of(mutant.source, loaded, device, copy, originals[path], seed).status
            counts[status] += 1
            if status == "survived":
                report.defects.append(_survivor(path, mutant))
    report.mutants = _summary(counts, len(chosen), limit_s)


def _in_turns(solutions: Sequence[Path], seed: int) -> Iterator[tuple[Path, Mutant]]:
    """Yield mutants of all solutions in turn, so that each has some within the time."""
    found = {path: mutants(text_of(path), MOST_PER_SOLUTION, seed, pairs=False) for path in solutions}
    made = [[(path, each) for each in own if not _ARRAY.match(each.what)] for path, own in found.items()]
    yield from (each for row in zip_longest(*made) for each in row if each is not None)


def _survivor(path: Path, mutant: Mutant) -> Defect:
    what = f"a mutant passes all checks of its results ({mutant.kind}): {mutant.what}"
    instead = "If it is wrong, add a case or an input that shows it."
    return Defect(what, f"{path}:{mutant.line}", instead, level="warning")


def _summary(counts: Counter[Status], chosen: int, limit_s: float) -> str:
    killed, survived = counts["killed"], counts["survived"]
    verb = "survives" if survived == 1 else "survive"
    text = f"{killed} of {killed + survived} mutants fail; {survived} {verb}"
    untried = chosen - sum(counts.values())
    text += f"; {untried} were not tried within {limit_s:g} s" if untried else ""
    others = counts["refused"] + counts["same"]
    return text + (f"; {others} more do not compile, or compile to the same code" if others else "")


def outcome_of(
    source: str, loaded: LoadedExercise, device: Device, copy: Path, original: list[str] | None, seed: int
) -> Outcome:
    """Return the outcome of a mutant by `compile`, `correct` and `safe`.

    The mutant is written to `copy`. `original` is the machine code of the original; None to grade in any case.
    """
    try:  # most mutants differ from the original in the first variant, so the others need no comparison
        if original is not None and all(map(operator.eq, machine_code(source, loaded), original)):
            return Outcome("same")
    except DeviceError:
        return Outcome("refused")
    copy.write_text(source, encoding="utf-8")
    grader = Grader(loaded, copy, device, seed, limits=LIMITS)
    for check in checks_of(loaded.exercise):
        if check.kind in ("compile", "correct", "safe"):
            result = grader.run(check)
            if result.verdict != "passed":
                return Outcome("killed", check.name, result.findings[0].code if result.findings else "")
    return Outcome("survived")


def machine_code(source: str, loaded: LoadedExercise) -> Iterator[str]:
    """Yield the PTX of each variant without lines and names of files; raise DeviceError if it does not compile."""
    headers = {name: (loaded.folder / name).read_text(encoding="utf-8") for name in loaded.exercise.headers}
    for variant in variants_of(loaded.exercise):
        ptx, _ = compile_ptx(source, f"{loaded.name}.cu", "compute_90", dict(variant.defines), headers)
        yield _NO_CODE.sub(" ", ptx)
