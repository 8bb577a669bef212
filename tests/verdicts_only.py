"""A plugin of runs about verdicts: it leaves out work that does not change the verdicts of wrong kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gpulab.exercise import Case, SafeCheck
    from pytest_gpulab.grading.checks import Check
    from pytest_gpulab.grading.diagnosis.compare import CaseOutcome
    from pytest_gpulab.grading.grade import CheckResult

CASE_S, COST_S = 4.0, 20.0
"""Time limits of a case, 20 s elsewhere, and of a count or cost estimate. The longest case that ends takes a second."""


def pytest_collection_finish() -> None:
    from pytest_gpulab.grading import grader  # by now NumPy has been loaded with one thread
    from pytest_gpulab.grading.checks import visible_first
    from pytest_gpulab.grading.compilation.builds import BuildFailed
    from pytest_gpulab.grading.correctness.safety import unsafe
    from pytest_gpulab.grading.time_limits import CaseLimits, TimeLimits

    limits = CaseLimits(TimeLimits(CASE_S), smallest="none", causes=False)

    class VerdictGrader(grader.Grader):
        """A grader without causes and smallest inputs that ends a `safe` check at the first case with a hazard."""

        def __init__(self, *subject: Any, annotate: bool) -> None:
            super().__init__(*subject, limits=limits, annotate=annotate)
            self._kind = ""

        def run(self, check: Check) -> CheckResult:
            self._budget._case_s = COST_S if check.kind in ("speedup", "uses") else CASE_S
            return super().run(check)

        def _safe(self, check: Check, safe: SafeCheck) -> CheckResult:
            self._kind = safe.kind
            return super()._safe(check, safe)

        def _outcomes(self) -> list[tuple[Case, CaseOutcome]]:
            found: list[tuple[Case, CaseOutcome]] = []
            try:
                for case in visible_first(self._loaded.exercise.cases):
                    found.append((case, self._cases.outcome(case)))
                    if unsafe(self._kind, found[-1:]):
                        return found
            except BuildFailed:
                pass
            return super()._outcomes()

    grader.Grader = VerdictGrader  # type: ignore[misc]
