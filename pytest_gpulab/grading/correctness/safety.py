"""The `safe` checks: hazards and faults of one kind, gathered over the runs of all cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.checks import correct_name
from pytest_gpulab.grading.findings import evidence_of, finding, hint_for
from pytest_gpulab.grading.grade import Finding

from .cases import CaseOutcome

MAX_FINDINGS = 5
MAX_CHECKS_NAMED = 3

Outcomes = Iterable[tuple[Case, CaseOutcome]]
"""Those of visible cases before those of hidden ones: what is told is what was seen first."""

_KIND_OF_FAULT = {
    "out-of-bounds": "memory",
    "misaligned": "memory",
    "stack-overflow": "memory",
    "deadlock": "barrier",
    "barrier": "barrier",
}
_CODE_OF_KIND = {"memory": "out-of-bounds"}  # any other kind of hazard is a code itself


@dataclass
class _Sighting:
    """The same kind of thing at the same line: what was seen first, by which thread and launch, and in which cases."""

    what: str
    where: str
    evidence: tuple[str, ...]
    hint: str | None = None
    cases: list[Case] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Note that a case shows it."""
        if case not in self.cases:
            self.cases.append(case)

    def found(self, code: str, what: str, hint: str | None = None) -> Finding:
        """Return it as a finding, hidden if only hidden cases show it."""
        found = finding(code, what, self.where, (*self.evidence, _seen_in(self.cases)), hint)
        return replace(found, hidden=all(case.hidden for case in self.cases))


def unsafe(kind: str, outcomes: Outcomes) -> tuple[Finding, ...]:
    """Return the findings of a kind, one for each place in the source, out of cases with their outcomes."""
    sightings: dict[tuple[str, str], _Sighting] = {}
    for case, outcome in outcomes:
        for code, sighting in _sighted(kind, outcome):
            sightings.setdefault((code, sighting.where or sighting.what), sighting).add(case)
    found = (
        sighting.found(code, sighting.what[:1].upper() + sighting.what[1:], sighting.hint)
        for (code, _), sighting in sightings.items()
    )
    return tuple(found)[:MAX_FINDINGS]


def not_checked(kind: str, outcomes: Outcomes) -> tuple[Finding, ...]:
    """Return a finding for each thing that a check of the kind did not look at."""
    sightings: dict[str, _Sighting] = {}
    for case, outcome in outcomes:
        for what in outcome.unchecked if kind == "race" else ():
            sighting = _Sighting(f"The race check ran out of memory: it did not look at {what}.", "", ())
            sightings.setdefault(what, sighting).add(case)
    return tuple(sighting.found("not-checked", sighting.what) for sighting in sightings.values())


def harmless(kind: str, outcomes: Outcomes) -> tuple[Finding, ...]:
    """Return what looks like a hazard of a kind but cannot change a result, as notes, one for each place."""
    places: dict[tuple[str, str], _Sighting] = {}
    for case, outcome in outcomes:
        for hazard in outcome.hazards:
            if hazard.kind == kind and hazard.harmless:
                where = str(hazard.where or "")
                places.setdefault((hazard.what, where), _Sighting(hazard.what, where, _evidence(hazard))).add(case)
    found = (sighting.found(kind, f"Harmless: {sighting.what}", hint="") for sighting in places.values())
    return tuple(found)[:MAX_FINDINGS]


def _sighted(kind: str, outcome: CaseOutcome) -> list[tuple[str, _Sighting]]:
    """Return everything of the kind, each with its code."""
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
    """Return the thread and the launch; of a race also the access that it met."""
    lines = evidence_of(hazard)
    return (f"{lines[0]}, against the {hazard.other}", *lines[1:]) if hazard.other and hazard.lane else lines


def _seen_in(cases: Iterable[Case]) -> str:
    """Name the checks; hidden ones only where no other shows it."""
    cases = list(cases)
    checks = [correct_name(case) for case in cases if not case.hidden] or [correct_name(case) for case in cases]
    more = len(cases) - len(checks[:MAX_CHECKS_NAMED])
    return f"seen in {', '.join(checks[:MAX_CHECKS_NAMED])}" + (f" and {more} more" if more > 0 else "")
