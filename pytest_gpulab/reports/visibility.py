"""Visibility: a student sees all of a grade, but of hidden cases only the kind of mistake and a hint.

Points, verdicts, and the findings' codes and hints stay. Hidden cases lose:

- their names, as `n=1023` reveals the size
- printf output, evidence and sentences, which contain indices and expected values
- source lines, as a kernel may choose by the size at which line it fails
- their time

Timed runs come after hidden cases, and a kernel may have kept data of these, so their wrong outputs are not shown.
Other users of the GPU are not named. Tracebacks of the exercise or of the grader are for the instructor only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_gpulab.grading.findings import OUT_OF_TIME
from pytest_gpulab.grading.grade import EXERCISES_MISTAKE, CheckResult, Finding, Grade

HIDDEN = "correct[hidden]"
SEEN_HIDDEN = "Seen in a case that is hidden from you."
OTHERS = ("other processes",)
_GRADERS_MISTAKES = ("not-graded", EXERCISES_MISTAKE)
_TELLING_VALUES = ("wrong-result", "not-written", "not-repeatable")


def for_student(grade: Grade) -> Grade:
    """Return the grade as its student may see it. Applying this twice changes nothing more."""
    names = _names(check.name for check in grade.checks if check.hidden)
    return replace(grade, checks=tuple(_shown(check, names) for check in grade.checks))


def _names(hidden: Iterable[str]) -> Mapping[str, str]:
    """Return a neutral name per hidden check, with a number where there are several."""
    hidden = list(hidden)
    if len(hidden) == 1:
        return {hidden[0]: HIDDEN}
    return {name: f"{HIDDEN[:-1]} {number}]" for number, name in enumerate(hidden, 1)}


def _shown(check: CheckResult, names: Mapping[str, str]) -> CheckResult:
    findings = tuple(_shown_finding(finding, check, names) for finding in check.findings)
    if names and check.kind == "speedup":
        findings = tuple(replace(each, evidence=()) if each.code in _TELLING_VALUES else each for each in findings)
    measurement = check.measurement
    if measurement is not None and measurement.shared_with:
        measurement = replace(measurement, shared_with=OTHERS)
    shown = replace(check, findings=findings, measurement=measurement)
    if not check.hidden:
        return shown
    return replace(shown, name=names[check.name], printed="", listing=None, duration_s=0.0)


def _shown_finding(finding: Finding, check: CheckResult, names: Mapping[str, str]) -> Finding:
    if finding.because in names or (finding.because and finding.hidden):  # the case need not have been selected
        name = names.get(finding.because, HIDDEN)
        what = f"Not graded, because `{name}` did not pass."
        return replace(finding, what=what, where="", line="", evidence=(), because=name)
    if finding.hidden or (check.hidden and not finding.because and finding.code != OUT_OF_TIME):
        return replace(finding, what=SEEN_HIDDEN, where="", line="", evidence=(), hidden=True, smallest=None)
    return replace(finding, evidence=()) if finding.code in _GRADERS_MISTAKES else finding
