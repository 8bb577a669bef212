"""The `safe` checks: hazards and faults of one kind, gathered over the runs of all cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.grading.cases import CaseOutcome
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding

MAX_FINDINGS = 5
MAX_CHECKS_NAMED = 3

_KIND_OF_FAULT = {"out-of-bounds": "memory", "misaligned": "memory", "deadlock": "barrier", "barrier": "barrier"}
_CODE_OF_KIND = {"memory": "out-of-bounds"}  # any other kind of hazard is a code itself


@dataclass
class _Sighting:
    """The same kind of thing at the same line: what was seen first, who did it, and in which checks."""

    what: str
    where: str
    first: str
    checks: list[str] = field(default_factory=list)


def unsafe(kind: str, outcomes: Mapping[str, CaseOutcome]) -> tuple[Finding, ...]:
    """Return the findings of a kind, one for each place in the source, out of check name to outcome."""
    sightings: dict[tuple[str, str], _Sighting] = {}
    for check, outcome in outcomes.items():
        for code, what, where, lane in _sighted(kind, outcome):
            sighting = sightings.setdefault((code, where or what), _Sighting(what, where, lane))
            if check not in sighting.checks:
                sighting.checks.append(check)
    found = []
    for (code, _), sighting in sightings.items():
        first = (f"first by {sighting.first}",) if sighting.first else ()
        what = sighting.what[:1].upper() + sighting.what[1:]
        found.append(finding(code, what, sighting.where, (*first, _seen_in(sighting.checks))))
    return tuple(found[:MAX_FINDINGS])


def harmless(kind: str, outcomes: Mapping[str, CaseOutcome]) -> tuple[Finding, ...]:
    """Return what looks like a hazard of a kind but cannot change a result, as notes, one for each place."""
    places: dict[tuple[str, str], tuple[Hazard, list[str]]] = {}
    for check, outcome in outcomes.items():
        for hazard in outcome.hazards:
            if hazard.kind == kind and hazard.harmless:
                _, checks = places.setdefault((hazard.what, str(hazard.where or "")), (hazard, []))
                if check not in checks:
                    checks.append(check)
    return tuple(
        finding(kind, f"Harmless: {hazard.what}", where, (f"first by {_party(hazard)}", _seen_in(checks)), hint="")
        for (_, where), (hazard, checks) in list(places.items())[:MAX_FINDINGS]
    )


def _sighted(kind: str, outcome: CaseOutcome) -> list[tuple[str, str, str, str]]:
    """Return code, what, where and lane of everything of the kind."""
    code = _CODE_OF_KIND.get(kind, kind)
    hazards = [
        (code, hazard.what, str(hazard.where or ""), _party(hazard))
        for hazard in outcome.hazards
        if hazard.kind == kind and not hazard.harmless
    ]
    faults = [
        (fault.code, fault.what, str(fault.where or ""), str(fault.lane or ""))
        for fault in outcome.faults
        if _KIND_OF_FAULT.get(fault.code) == kind
    ]
    return hazards + faults


def _party(hazard: Hazard) -> str:
    """Return who did it; of a race also the access that it met."""
    met = f", against the {hazard.other}" if hazard.other else ""
    return f"{hazard.lane or ''}{met}"


def _seen_in(checks: list[str]) -> str:
    more = len(checks) - MAX_CHECKS_NAMED
    return f"seen in {', '.join(checks[:MAX_CHECKS_NAMED])}" + (f" and {more} more" if more > 0 else "")
