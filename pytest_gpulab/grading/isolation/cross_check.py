"""The simulator cross-check: a submission that a real GPU grades runs on the simulated GPU, too.

Hardware tolerates errors: a read past the end of an array, a barrier that not all threads reach, a race without effect
in this run. The simulated GPU finds them. It runs the small cases in a process with a time limit. Then

- `safe` fails for a hazard that either of them finds;
- a `correct` check that passed on the GPU fails if the simulated GPU proves that this was luck: an out-of-bounds
  access, or runs of the case that disagree. Merely wrong results prove nothing, because the simulator could be wrong;
- a `correct` check that failed on the GPU stays failed, with the simulated GPU's finding if that is more precise;
- `uses` and `speedup` need the cases of their variant, as always. The counters of `uses` come from the simulated GPU,
  which has compiled the submission already;
- a `speedup` check that passed on the GPU fails for a race or an out-of-bounds access in a large launch;
- a kernel that fails on the GPU at the timed size runs on the simulated one at a smaller size, to find the line.

If there is no simulated GPU, or it cannot run a case or not in time, the GPU's verdict stands and no points are lost.
"""

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
from pytest_gpulab.grading.correctness.safety import ORDER, is_cut_short
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import COMPILER_WARNING, PROOF, CheckResult, Finding, Verdict
from pytest_gpulab.grading.time_limits import TIME_LIMIT

from .worker_process import Crashed, Hung, ProcessScope, Worker, WorkerError

LIMIT_S = 30.0  # total wait per submission; the exercises' kernels take one or two seconds

OVERFLOW = "stack-overflow"
STOPPED = (
    "out-of-bounds", "misaligned", OVERFLOW, "assert", "trap", "breakpoint", "device-fault", "endless-loop",
    "time-limit",
)  # fmt: skip
"""Codes of a kernel that ended abnormally, as hardware reports it."""
PRECISE = (*PROOF, OVERFLOW, "barrier", "deadlock", "assert", "trap", "breakpoint", "texture")
VAGUE = ("device-fault", "wrong-result", "not-written", "not-repeatable", "endless-loop")
"""Codes of hardware for errors that the simulated GPU can name."""

SEEN = "found by the simulated GPU, which checks every access"
LUCK = "correct on the GPU only by luck: the simulated GPU checks every access and tries other orders of warps"


class CrossCheck:
    """The grading of one submission on the simulated GPU, in its own process, in parallel with the real GPU.

    The simulated GPU runs the code for the real one's architecture.
    """

    architecture = ""

    def __init__(self, exercise: Exercise, task: Mapping[str, Any], scope: ProcessScope) -> None:
        """Store the task of the process on the real GPU; `prefetch` starts the process."""
        self._scope = scope
        self._exercise, self._task = exercise, {**task, **_SIMULATED}
        self._counts = not task["annotate"]  # annotated listings are counted on the real GPU's worker
        self._checks = {check.name: check for check in checks_of(exercise)}
        self._results: dict[str, CheckResult] = {}
        self._worker: Worker | None = None
        self._pending: deque[str] = deque()
        self._left_s = LIMIT_S
        self._unavailable = ""

    def prefetch(self, check: Check) -> None:
        """Request all results: of this check first, then of those after it, then of those before it."""
        names = list(self._checks)
        first = names.index(check.name)
        for name in (*names[first:], *names[:first]):
            kind = self._checks[name].kind
            if kind in ("compile", "correct", "safe"):
                self._send("check", name)
            elif kind == "uses" and self._counts:
                self._send("count", name)

    def veto(self, check: Check) -> CheckResult | None:
        """Return the failure of a check if its cases are correct only by luck, else None: the GPU may grade it."""
        if not isinstance(check.subject, SpeedTier | UsesCheck):
            return None
        for case in visible_first(cases_of(self._exercise, check.subject.variant) or self._exercise.cases):
            simulated = self._simulated(correct_name(case))
            if simulated is not None and proves_luck(simulated):
                verdict: Verdict = "not gradable" if simulated.is_exercises_mistake else "failed"
                return check.result(verdict, (because_of(simulated.name, simulated.findings[0], case.hidden),))
        return None

    def combined_with(self, result: CheckResult) -> CheckResult:
        """Return the real GPU's result, combined with the simulated GPU's."""
        if (mistake := self._exercises_mistake(result)) is not None:
            return replace(result, verdict="not gradable", points=0.0, findings=(mistake,))
        if was_stopped(result):
            return replace(result, findings=self._traced(result))
        if result.verdict not in ("passed", "failed"):
            return result
        if result.kind == "speedup":
            return self._in_order(result)
        if result.kind == "safe":
            simulated = self._simulated(result.name)
            if simulated is not None and self._is_all_luck(simulated):
                return replace(result, verdict="failed", points=0.0, findings=simulated.findings)
            return _safe(result, simulated, self._unavailable)
        if result.kind == "correct":
            simulated = self._simulated(result.name)
            if result.verdict == "failed":
                return replace(result, findings=self._explained(result, simulated))
            if simulated is not None and proves_luck(simulated):
                first, *others = simulated.findings
                first = replace(first, evidence=(*first.evidence, LUCK))
                return replace(result, verdict="failed", points=0.0, findings=(first, *others))
        return result

    def _in_order(self, result: CheckResult) -> CheckResult:
        """Return the result of a `speedup` check; it fails for a race in a large launch, the cause of wrong outputs."""
        is_wrong = any(found.code in VAGUE and not found.because for found in result.findings[:1])
        simulated = self._answer_to("count", result.name) if is_wrong or result.verdict == "passed" else None
        if simulated is None:
            return result
        if result.verdict == "passed" and is_cut_short(simulated.findings):
            return replace(result, verdict="not gradable", points=0.0, findings=simulated.findings)
        if not any(found.code in (*ORDER, *PROOF) for found in simulated.findings):
            return result
        return replace(result, verdict="failed", points=0.0, findings=(*simulated.findings, *result.findings))

    def count(self, check: Check) -> CheckResult | None:
        """Grade a `uses` check by the simulated GPU's counters; return None if it must be counted elsewhere.

        A count that ran out of the short time beside a GPU is no verdict: a busy machine would decide it.
        """
        result = self._answer_to("count", check.name)
        return None if result is not None and any(found.code == TIME_LIMIT for found in result.findings) else result

    def close(self) -> None:
        """End the process, if there is one; its open requests must be sent again."""
        self._pending.clear()
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _is_all_luck(self, safe: CheckResult) -> bool:
        """Return whether a `safe` check has no correct case on the simulated GPU, and results on the GPU are luck."""
        cause = safe.findings[0].because if safe.verdict == "failed" else ""
        case = self._simulated(cause) if cause in self._checks else None
        return case is not None and proves_luck(case)

    def _exercises_mistake(self, result: CheckResult) -> Finding | None:
        """Return the exercise's mistake behind a result: on the simulated GPU its baseline fails as the submission."""
        because = result.findings[0].because if result.findings else ""
        name = because if result.verdict == "failed" and because else result.name
        if self._checks[name].kind not in ("correct", "safe") or result.verdict not in ("passed", "failed"):
            return None
        simulated = self._simulated(name)
        if simulated is None or not simulated.is_exercises_mistake:
            return None
        if result.verdict == "passed" and result.kind == "correct" and not proves_luck(simulated):
            return None
        first = simulated.findings[0]
        return first if name == result.name else because_of(name, first, result.findings[0].hidden)

    def _explained(self, result: CheckResult, simulated: CheckResult | None) -> tuple[Finding, ...]:
        which, seen = "the same case", simulated
        if simulated is None or simulated.verdict == "not gradable":  # a smaller case may show the same error
            which, seen = self._another_case(result.name)
        first, *others = result.findings
        if seen is None:
            return result.findings
        if seen is simulated and seen.findings and _is_closer(seen.findings[0].code, first.code):
            named = seen.findings[0]
            evidence = (*named.evidence, f"on the GPU: {first.what}", *first.evidence)
            return (replace(named, evidence=tuple(dict.fromkeys(evidence))), *others)
        line = f"{which} on the simulated GPU: {_summary(seen)}"
        where = seen.findings[0].where if seen is simulated and seen.findings else ""
        smallest = seen.findings[0].smallest if seen.findings else None
        explained = replace(first, evidence=(*first.evidence, line), where=first.where or where, smallest=smallest)
        return (explained, *others)

    def _traced(self, result: CheckResult) -> tuple[Finding, ...]:
        first, *others = result.findings
        seen = self._simulated(result.name)
        if seen is None or seen.verdict == "not gradable":
            return result.findings
        is_stopped = bool(seen.findings) and seen.findings[0].code in (*STOPPED, *PRECISE)
        subject = self._checks[result.name].subject
        assert isinstance(subject, SpeedTier)
        which = "the same size" if subject.simulated_size is None else "a smaller size"
        line = f"at {which} on the simulated GPU: {_summary(seen) if is_stopped else 'the kernel ends normally'}"
        where = seen.findings[0].where if is_stopped else ""
        return (replace(first, evidence=(*first.evidence, line), where=first.where or where), *others)

    def _another_case(self, name: str) -> tuple[str, CheckResult | None]:
        subject = self._checks[name].subject
        assert isinstance(subject, Case)
        for case in (case for case in cases_of(self._exercise, subject.variant) if not case.hidden):
            simulated = self._simulated(correct_name(case))
            if simulated is not None and simulated.verdict != "not gradable":
                return f"the case {case.name}", simulated
        return "", None

    def _simulated(self, name: str) -> CheckResult | None:
        """Return the simulated GPU's result of a check; None where it has none."""
        simulated = self._answer_to("check", name)
        is_none = simulated is None or any(found.because == "compile" for found in simulated.findings)
        return None if is_none else simulated

    def _answer_to(self, what: str, name: str) -> CheckResult | None:
        """Return the answer to a request, which is sent if it was not; None if no answer will come."""
        self._send(what, name)
        while name not in self._results and not self._unavailable:
            self._unavailable = self._receive()
        if self._unavailable:
            self.close()
        return self._results.get(name)

    def _send(self, what: str, name: str) -> None:
        if self._unavailable or name in self._results or name in self._pending:
            return
        if self._worker is None:
            try:
                self._worker = Worker({**self._task, "beside": self.architecture}, self._scope)
            except DeviceUnavailable as missing:
                self._unavailable = f"there is no simulated GPU: {missing}"
                return
        self._worker.send({what: name})
        self._pending.append(name)

    def _receive(self) -> str:
        """Store the next answer; return the reason if no answer will come, else nothing."""
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
        self._results[self._pending.popleft()] = CheckResult.from_dict(answer["result"])
        return ""


_SIMULATED: dict[str, Any] = {
    "device": "sim",
    "occupancy_architecture": None,
    "gpu": None,
    "launch_limit_s": LAUNCH_LIMIT_S,
    "known": {},
    "info": None,
    "annotate": False,
}


def _is_closer(code: str, of_hardware: str) -> bool:
    """Return whether the simulated GPU names an error of which hardware only reports the effect."""
    return (of_hardware in VAGUE and code in PRECISE) or (of_hardware == "out-of-bounds" and code == OVERFLOW)


def was_stopped(result: CheckResult) -> bool:
    """Return whether a timed kernel ended abnormally on the GPU."""
    if result.kind != "speedup" or result.verdict not in ("failed", "missed"):
        return False
    return any(found.code in STOPPED and not found.because for found in result.findings[:1])


def proves_luck(simulated: CheckResult) -> bool:
    """Return whether a `correct` check on the simulated GPU shows that the case's results depend on luck."""
    if simulated.kind != "correct" or not (simulated.verdict == "failed" or simulated.is_exercises_mistake):
        return False
    return any(found.code in PROOF or found.by_luck for found in simulated.findings)


def _safe(result: CheckResult, simulated: CheckResult | None, unavailable: str) -> CheckResult:
    own = tuple(found for found in result.findings if not found.because)
    if simulated is not None and result.verdict == "passed" and is_cut_short(simulated.findings):
        return replace(result, verdict="not gradable", points=0.0, findings=simulated.findings)
    if simulated is None or simulated.verdict == "not gradable":
        why = unavailable or "it does not compile for the simulated GPU"
        if simulated is not None:
            why = simulated.findings[0].what
        note = finding("cannot-simulate", f"Checked on the GPU only: {why}", hint="")
        return replace(result, findings=(note,)) if result.verdict == "passed" else result
    seen = tuple(
        found if found.code == COMPILER_WARNING else replace(found, evidence=(*found.evidence, SEEN))
        for found in simulated.findings
        if not found.because
    )
    if simulated.verdict == "passed":  # with notes on harmless hazards
        return replace(result, findings=(*result.findings, *seen))
    return replace(result, verdict="failed", points=0.0, findings=(*seen, *own)) if seen else result


def _summary(simulated: CheckResult) -> str:
    if simulated.verdict == "passed":
        return "passed"
    first = simulated.findings[0]
    thread = next((f", {line}" for line in first.evidence if line.startswith("first by ")), "")
    return (f"{first.where}: " if first.where else "") + first.what + thread
