"""A problem of an exercise, and the report of all of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pytest_gpulab.grading.correctness.shrinking import EVERY_SIZE
from pytest_gpulab.grading.findings import counted
from pytest_gpulab.grading.grade import EXERCISES_MISTAKE, Finding

Level = Literal["error", "warning"]
_ADVICE = {  # where the exercise may be wrong and the kernel right
    "not-repeatable": "If the order of float atomics may change results, write deterministic=False in exercise.py.",
    "concept": "If the file is right, this bound in exercise.py is too strict.",
    "too-slow": "If the file is right, this threshold in exercise.py is too high.",
}
_ROUNDING = "The tolerance is 0. If results may be rounded, give one: pytest_gpulab.numerics has bounds."
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)|^(?P<place>\S+\.py), line (?P<number>\d+)')
_FIGURES = re.compile(r"is (-?\d+\.\d[\d.e+-]*), expected (-?\d[\d.e+-]*)")
PARAMETERS = {
    "plan": "problem",
    "inputs": "problem, pattern, rng",
    "reference": "problem, inputs",
    "reference_at": "problem, inputs, places",
    "mistakes": "problem, inputs",
    "size": "tunables",
    "min_bytes": "problem",
}
"""The parameters of an exercise's functions."""


@dataclass(frozen=True)
class Defect:
    """A mistake in an exercise."""

    what: str  # the mistake, in a sentence
    where: str  # `file` or `file:line`
    instead: str = ""  # what to write instead; empty if `what` says it
    level: Level = "error"  # errors make grades wrong; warnings may

    def lines(self) -> list[str]:
        """Return the problem as text."""
        return [f"{self.where}: {self.level}: {self.what}", *([f"    {self.instead}"] if self.instead else [])]


@dataclass
class Report:
    """All that a check of one exercise found."""

    name: str
    defects: list[Defect] = field(default_factory=list)  # in the order of the checks
    points: dict[str, float] = field(default_factory=dict)  # points by kind of check
    graded: list[str] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)  # processor time to grade each of these files
    mutants: str = ""  # how many mutants of the solutions fail, in words; empty if none was graded

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(problem.level == "error" for problem in self.defects)

    def lines(self) -> list[str]:
        """Return the report as text: a heading, the problems, then facts."""
        warnings = len(self.defects) - self.errors
        found = [line for problem in self.defects for line in problem.lines()]
        facts = []
        if self.points:
            facts.append("points: " + ", ".join(f"{kind} {points:g}" for kind, points in self.points.items()))
        facts += [f"mutants: {self.mutants}"] if self.mutants else []
        if self.times_s:
            from statistics import median  # a handout needs no report

            graded = f"{counted(len(self.graded), 'file')} graded"
            facts.append(f"{graded}; a file takes about {median(self.times_s):.1f} s of processor time without a GPU")
        head = f"{self.name}: {counted(self.errors, 'error')}, {counted(warnings, 'warning')}"
        return [head, *(f"  {line}" for line in (*found, *facts))]


def of_finding(found: Finding, where: str) -> Defect:
    """Return the problem of a finding on the exercise's own code.

    The place is the last one of the traceback in the evidence that is beside `where`, the exercise's file.
    """
    frames = [match for line in found.evidence if (match := _FRAME.search(line.strip()))]
    frames = [match for match in frames if Path(match["file"] or match["place"]).parent == Path(where).parent]
    stated = _FRAME.search(found.what.partition(": ")[2])
    match = stated or (frames[-1] if frames else None)
    instead = _signature(found)
    if match is None:
        return Defect(found.what, found.where or where, instead)
    file = match["file"] or Path(where).parent / match["place"]
    place = f"{file}:{match['line'] or match['number']}"
    return Defect(found.what.replace(f"{match[0]}: ", ""), place, instead)


def _signature(found: Finding) -> str:
    """Return the parameters of the exercise's function that raised an error of types; empty for another error."""
    if found.evidence and found.evidence[-1].startswith("It is called as "):
        return found.evidence[-1]
    name = found.what.partition("`")[2].partition("`")[0]
    is_of_types = bool(found.evidence) and found.evidence[-1].startswith(("TypeError", "AttributeError"))
    return f"It is called as {name}({PARAMETERS[name]})." if is_of_types and name in PARAMETERS else ""


def of_findings(findings: Sequence[Finding], prefix: str, where: str) -> Defect:
    """Return the problem of a check that should have passed: its first finding, with advice for instructors."""
    first = findings[0] if findings else None
    if first is None:
        return Defect(prefix, where)
    if first.code == EXERCISES_MISTAKE:  # its hint is for students
        own = of_finding(first, where)
        return Defect(f"{prefix}: {own.what}", own.where)
    figures = next((f" {line}" for line in first.evidence if " expected " in line), "")
    is_rounding = first.code == "wrong-result" and "allowed error" not in figures and _is_near(figures)
    advice = _ROUNDING if is_rounding else _ADVICE.get(first.code, first.hint)
    has_relation = first.smallest is not None and bool(first.smallest.relation)  # its hint is for students
    if advice == EVERY_SIZE or (has_relation and not is_rounding):
        advice = "Either this file or `reference` in exercise.py is wrong."
    return Defect(f"{prefix}: {first.what}{figures}", where, advice)


def _is_near(figures: str) -> bool:
    """Return True if two figures with decimals, `is 1.5, expected 1.6`, differ by a tenth of a per cent at most."""
    pair = _FIGURES.search(figures)
    return pair is not None and abs(float(pair[1]) - float(pair[2])) <= 1e-3 * abs(float(pair[2]))
