"""The `safe` checks: the hazards and faults of one kind in the runs of all cases."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.checks import correct_name
from pytest_gpulab.grading.diagnosis.compare import CaseOutcome
from pytest_gpulab.grading.findings import evidence_of, finding, hint_for
from pytest_gpulab.grading.grade import Finding

MAX_FINDINGS = 5  # per check; further lines often have the same cause
MAX_CHECKS_NAMED = 3

Outcomes = Iterable[tuple[Case, CaseOutcome]]
"""Visible cases come before hidden ones, because the first sighting is reported."""

_KIND_OF_FAULT = {
    "out-of-bounds": "memory",
    "misaligned": "memory",
    "stack-overflow": "memory",
    "deadlock": "barrier",
    "barrier": "barrier",
}
ORDER = ("race", "barrier")
"""Hazards of threads that do not wait for each other as they must: their kinds, and the codes of their findings."""
_CODE_OF_KIND = {"memory": "out-of-bounds"}  # all other kinds are codes themselves


@dataclass
class _Sighting:
    """A hazard at a line: its first occurrence, with thread and launch, and the cases that show it."""

    what: str
    where: str
    evidence: tuple[str, ...]
    hint: str | None = None
    cases: list[Case] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Add a case that shows it."""
        if case not in self.cases:
            self.cases.append(case)

    def found(self, code: str, what: str, hint: str | None = None) -> Finding:
        """Return the finding; it is hidden if only hidden cases show it."""
        found = finding(code, what, self.where, (*self.evidence, _seen_in(self.cases)), hint)
        return replace(found, hidden=all(case.hidden for case in self.cases))


def unsafe(kind: str, outcomes: Outcomes) -> tuple[tuple[Finding, Case], ...]:
    """Return the findings of a kind in the outcomes, one per source line, each with the first case that shows it."""
    sightings: dict[tuple[str, str], _Sighting] = {}
    for case, outcome in outcomes:
        for code, sighting in _sighted(kind, outcome):
            sightings.setdefault((code, sighting.where or sighting.what), sighting).add(case)
    found = (
        (sighting.found(code, sighting.what[:1].upper() + sighting.what[1:], sighting.hint), sighting.cases[0])
        for (code, _), sighting in sightings.items()
    )
    return tuple(found)[:MAX_FINDINGS]


def not_checked(kind: str, outcomes: Outcomes) -> tuple[Finding, ...]:
    """Return a finding for each group of accesses that a check of the kind skipped."""
    sightings: dict[str, _Sighting] = {}
    for case, outcome in outcomes:
        for what in outcome.unchecked if kind == "race" else ():
            sighting = _Sighting(skipping(what).what.capitalize(), "", ())
            sightings.setdefault(what, sighting).add(case)
    return tuple(sighting.found("not-checked", sighting.what) for sighting in sightings.values())


def skipping(what: str) -> Finding:
    """Return the finding of accesses that the race check skipped; `what` names them. Its text is a clause."""
    return finding("not-checked", f"the race check ran out of memory: it skipped {what}.")


def is_cut_short(findings: Iterable[Finding]) -> bool:
    """Return whether hazards were not fully checked; then nothing is known about races, which a GPU cannot detect."""
    return any(found.code == "not-checked" for found in findings)


def harmless(kind: str, outcomes: Outcomes) -> tuple[Finding, ...]:
    """Return notes on hazards of a kind that cannot change a result, one per source line."""
    places: dict[tuple[str, str], _Sighting] = {}
    for case, outcome in outcomes:
        for hazard in outcome.hazards:
            if hazard.kind == kind and hazard.harmless:
                where = str(hazard.where or "")
                places.setdefault((hazard.what, where), _Sighting(hazard.what, where, _evidence(hazard))).add(case)
    found = (sighting.found(kind, f"Harmless: {sighting.what}", hint="") for sighting in places.values())
    return tuple(found)[:MAX_FINDINGS]


def wrong_order(hazards: Iterable[Hazard]) -> tuple[Finding, ...]:
    """Return the hazards of a kind in `ORDER`, as findings."""
    return tuple(
        finding(hazard.kind, hazard.what, str(hazard.where or ""), _evidence(hazard), hint_for(hazard))
        for hazard in hazards
        if hazard.kind in ORDER and not hazard.harmless
    )


def _sighted(kind: str, outcome: CaseOutcome) -> list[tuple[str, _Sighting]]:
    """Return all hazards and faults of the kind, with their codes."""
    code = _CODE_OF_KIND.get(kind, kind)
    hazards = [
        (code, _Sighting(hazard.what, str(hazard.where or ""), _evidence(hazard), hint_for(hazard)))
        for hazard in outcome.hazards
        if hazard.kind == kind and not hazard.harmless
    ]
    faults = [
        (fault.code, _Sighting(fault.what, str(fault.where or ""), evidence_of(fault)))
        for fault in outcome.faults
        if _KIND_OF_FAULT.get(fault.code) == kind
    ]
    return hazards + faults


def _evidence(hazard: Hazard) -> tuple[str, ...]:
    """Return the thread and the launch, and the other access of a race."""
    lines = evidence_of(hazard)
    return (f"{lines[0]}, against the {hazard.other}", *lines[1:]) if hazard.other and hazard.lane else lines


def _seen_in(cases: Iterable[Case]) -> str:
    """Name the checks; hidden ones only if no visible one shows it."""
    cases = list(cases)
    checks = [correct_name(case) for case in cases if not case.hidden] or [correct_name(case) for case in cases]
    more = len(cases) - len(checks[:MAX_CHECKS_NAMED])
    return f"seen in {', '.join(checks[:MAX_CHECKS_NAMED])}" + (f" and {more} more" if more > 0 else "")
