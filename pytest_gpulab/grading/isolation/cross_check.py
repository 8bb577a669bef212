"""What the simulated GPU says of a submission that a real one grades, and what of it counts.

Hardware lets pass what CUDA forbids: a read past the end of an array, a barrier that not all threads reach, a race that
nobody lost this time. So whatever a real GPU grades runs on the simulated one, too, in a process with a time limit, as
far as its cases are small. Then

- `safe` fails for what either of them sees;
- `correct`, right on the GPU, fails if the simulated one proves that this was luck: an access outside of all arrays, or
  runs of the case that do not agree. Plainly wrong results prove nothing, they might be the simulator's own mistake;
- `correct`, wrong on the GPU, stays so; where the simulated one names the mistake more precisely its name is given;
- `uses` and `speedup` need the cases of their variant, as ever; it counts for `uses` what it has compiled anyway;
- a kernel that the GPU stops at the timed size runs on the simulated one at a smaller size, which may show where.

Where there is no simulated GPU, or it cannot run a case or not in time, the GPU's word stands and nobody loses a point.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_gpulab.devices import LAUNCH_LIMIT_S
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.exercise import Case, Exercise, SpeedTier, UsesCheck
from pytest_gpulab.grading.checks import Check, checks_of, correct_name, visible_first
from pytest_gpulab.grading.compilation.builds import cases_of
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Finding

from .worker_process import Crashed, Hung, ProcessScope, Worker, WorkerError

LIMIT_S = 30.0  # that a submission's grader waits for answers; the exercises' kernels take one or two

PROOF = ("out-of-bounds", "misaligned", "not-repeatable")
OVERFLOW = "stack-overflow"
STOPPED = ("out-of-bounds", "misaligned", OVERFLOW, "assert", "trap", "device-fault", "endless-loop", "time-limit")
"""How a kernel ends abnormally, as hardware says."""
PRECISE = (*PROOF, OVERFLOW, "barrier", "deadlock", "assert", "trap", "texture")
VAGUE = ("device-fault", "wrong-result", "not-written", "not-repeatable", "endless-loop")
"""What hardware says of mistakes that the simulated GPU can name."""

SEEN = "seen on the simulated GPU, which watches every access"
LUCK = "right on the GPU, by luck: the simulated GPU watches every access and tries other orders of warps"


class CrossCheck:
    """Grades one submission on the simulated GPU in a process of its own, while the real one is at work."""

    def __init__(self, exercise: Exercise, task: Mapping[str, Any], scope: ProcessScope) -> None:
        """Start nothing yet.

        Args:
            exercise: what to grade it for.
            task: what the process on the real GPU is told.
            scope: of the process.
        """
        self._custody = scope
        self._exercise, self._task = exercise, {**task, **_SIMULATED}
        self._counts = not task["annotate"]  # what is annotated is counted where that happens
        self._checks = {check.name: check for check in checks_of(exercise)}
        self._opinions: dict[str, CheckResult] = {}
        self._worker: Worker | None = None
        self._unheard: deque[str] = deque()
        self._left_s = LIMIT_S
        self._silent = ""

    def prefetch(self, check: Check) -> None:
        """Ask for everything that will be wanted, in this order: a check, those that follow it, those before."""
        names = list(self._checks)
        first = names.index(check.name)
        for name in (*names[first:], *names[:first]):
            kind = self._checks[name].kind
            if kind in ("compile", "correct", "safe"):
                self._ask("check", name)
            elif kind == "uses" and self._counts:
                self._ask("count", name)

    def objection(self, check: Check) -> CheckResult | None:
        """Return how a check fails that needs cases whose results are luck, or None: then the GPU is to be asked."""
        if not isinstance(check.subject, SpeedTier | UsesCheck):
            return None
        for case in visible_first(cases_of(self._exercise, check.subject.variant) or self._exercise.cases):
            opinion = self._on(correct_name(case))
            if opinion is not None and proves_luck(opinion):
                return check.result("failed", (because_of(opinion.name, opinion.findings[0], case.hidden),))
        return None

    def added_to(self, result: CheckResult) -> CheckResult:
        """Return what a real GPU said of a check, with what the simulated one adds."""
        if was_stopped(result):
            return replace(result, findings=self._traced(result))
        if result.verdict not in ("passed", "failed"):
            return result
        if result.kind == "safe":
            return _safe(result, self._on(result.name), self._silent)
        if result.kind == "correct":
            opinion = self._on(result.name)
            if result.verdict == "failed":
                return replace(result, findings=self._explained(result, opinion))
            if opinion is not None and proves_luck(opinion):
                first, *others = opinion.findings
                first = replace(first, evidence=(*first.evidence, LUCK))
                return replace(result, verdict="failed", points=0.0, findings=(first, *others))
        return result

    def count(self, check: Check) -> CheckResult | None:
        """Grade a `uses` check by what the simulated GPU counts; None where it cannot be asked."""
        return self._heard("count", check.name)

    def close(self) -> None:
        """End the process, if there is one; what it was asked has to be asked again."""
        self._unheard.clear()
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _explained(self, result: CheckResult, opinion: CheckResult | None) -> tuple[Finding, ...]:
        which, seen = "the same case", opinion
        if opinion is None or opinion.verdict == "not gradable":  # perhaps a smaller one shows it
            which, seen = self._on_another(result.name)
        first, *others = result.findings
        if seen is None:
            return result.findings
        if seen is opinion and seen.findings and _is_closer(seen.findings[0].code, first.code):
            named = seen.findings[0]
            evidence = (*named.evidence, f"on the GPU: {first.what}", *first.evidence)
            return (replace(named, evidence=tuple(dict.fromkeys(evidence))), *others)
        line = f"{which} on the simulated GPU: {_told(seen)}"
        where = seen.findings[0].where if seen is opinion and seen.findings else ""
        return (replace(first, evidence=(*first.evidence, line), where=first.where or where), *others)

    def _traced(self, result: CheckResult) -> tuple[Finding, ...]:
        first, *others = result.findings
        seen = self._on(result.name)
        if seen is None or seen.verdict == "not gradable":
            return result.findings
        is_stopped = bool(seen.findings) and seen.findings[0].code in (*STOPPED, *PRECISE)
        subject = self._checks[result.name].subject
        assert isinstance(subject, SpeedTier)
        which = "the same size" if subject.simulated_size is None else "a smaller size"
        line = f"at {which} on the simulated GPU: {_told(seen) if is_stopped else 'it comes to its end'}"
        where = seen.findings[0].where if is_stopped else ""
        return (replace(first, evidence=(*first.evidence, line), where=first.where or where), *others)

    def _on_another(self, name: str) -> tuple[str, CheckResult | None]:
        subject = self._checks[name].subject
        assert isinstance(subject, Case)
        for case in (case for case in cases_of(self._exercise, subject.variant) if not case.hidden):
            opinion = self._on(correct_name(case))
            if opinion is not None and opinion.verdict != "not gradable":
                return f"the case {case.name}", opinion
        return "", None

    def _on(self, name: str) -> CheckResult | None:
        """Return what the simulated GPU makes of a check by itself; None where nothing can be had."""
        opinion = self._heard("check", name)
        is_none = opinion is None or any(found.because == "compile" for found in opinion.findings)
        return None if is_none else opinion

    def _heard(self, what: str, name: str) -> CheckResult | None:
        """Return the answer to a request, made now if it was not made before; None where it will never come."""
        self._ask(what, name)
        while name not in self._opinions and not self._silent:
            self._silent = self._hear()
        if self._silent:
            self.close()
        return self._opinions.get(name)

    def _ask(self, what: str, name: str) -> None:
        if self._silent or name in self._opinions or name in self._unheard:
            return
        if self._worker is None:
            try:
                self._worker = Worker(self._task, self._custody)
            except DeviceUnavailable as missing:
                self._silent = f"there is no simulated GPU: {missing}"
                return
        self._worker.send({what: name})
        self._unheard.append(name)

    def _hear(self) -> str:
        """Note the next answer; return why there is none and never will be."""
        assert self._worker is not None
        begin_s = time.perf_counter()
        try:
            answer = self._worker.answer(self._left_s)
        except DeviceUnavailable as missing:
            return f"there is no simulated GPU: {missing}"
        except Hung:
            return f"the simulated GPU would have taken more than {LIMIT_S:g} s"
        except Crashed as crash:
            return f"the process with the simulated GPU {crash}"
        except WorkerError as error:
            return f"the simulated GPU has a bug: {error.traceback_end}"
        self._left_s = max(0.0, self._left_s - (time.perf_counter() - begin_s))
        self._opinions[self._unheard.popleft()] = CheckResult.from_dict(answer["result"])
        return ""


_SIMULATED: dict[str, Any] = {
    "device": "sim",
    "occupancy_architecture": None,
    "gpu": None,
    "launch_limit_s": LAUNCH_LIMIT_S,
    "known": {},
    "info": None,
    "beside_a_gpu": True,
    "annotate": False,
}


def _is_closer(code: str, on_the_gpu: str) -> bool:
    """Whether the simulated GPU names a mistake that hardware only shows the effect of."""
    return (on_the_gpu in VAGUE and code in PRECISE) or (on_the_gpu == "out-of-bounds" and code == OVERFLOW)


def was_stopped(result: CheckResult) -> bool:
    """Say whether the GPU gave up a kernel while it was timed."""
    if result.kind != "speedup" or result.verdict not in ("failed", "missed"):
        return False
    return any(found.code in STOPPED and not found.because for found in result.findings[:1])


def proves_luck(opinion: CheckResult) -> bool:
    """Say whether a `correct` check on the simulated GPU shows that no result of the case can be relied on."""
    if opinion.verdict != "failed" or opinion.kind != "correct":
        return False
    return any(found.code in PROOF or found.by_luck for found in opinion.findings)


def _safe(result: CheckResult, opinion: CheckResult | None, silent: str) -> CheckResult:
    own = tuple(found for found in result.findings if not found.because)
    if opinion is not None and result.verdict == "passed" and _is_cut_short(opinion):
        return replace(result, verdict="not gradable", points=0.0, findings=opinion.findings)
    if opinion is None or opinion.verdict == "not gradable":
        why = opinion.findings[0].what if opinion is not None else silent or "it does not compile for the simulated GPU"
        note = finding("cannot-simulate", f"Seen by the GPU alone: {why}", hint="")
        return replace(result, findings=(note,)) if result.verdict == "passed" else result
    seen = tuple(
        found if found.code == COMPILER_WARNING else replace(found, evidence=(*found.evidence, SEEN))
        for found in opinion.findings
        if not found.because
    )
    if opinion.verdict == "passed":  # with notes on what is harmless
        return replace(result, findings=(*result.findings, *seen))
    return replace(result, verdict="failed", points=0.0, findings=(*seen, *own)) if seen else result


def _is_cut_short(opinion: CheckResult) -> bool:
    """Whether the check did not look at everything; a GPU sees no race at all."""
    return any(found.code == "not-checked" for found in opinion.findings)


def _told(opinion: CheckResult) -> str:
    if opinion.verdict == "passed":
        return "right"
    first = opinion.findings[0]
    who = next((f", {line}" for line in first.evidence if line.startswith("first by ")), "")
    return (f"{first.where}: " if first.where else "") + first.what + who
