"""Reasons why checks of one submission did not pass.

Checks with the same reason are listed together. Checks that were not reached, because one that they need did not pass,
are counted there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Finding, Grade, SmallestInput

from .text import abridged

MAX_NAMED = 3
"""Checks of one verdict and reason that are named; `-v` names all."""

MAX_SIMILAR = 3
"""Most reasons of one submission with the same code and place that are listed separately; `-v` lists all."""

MORE = "more of the same; -v shows all"

Kind = tuple[str, str, SmallestInput | None]

_THRESHOLD = re.compile(r"\[([\d.]+)x")


@dataclass
class Reason:
    """A finding with the checks that have it."""

    finding: Finding
    # their names by verdict, in the order of the grade; the verdict `expected` means failures that the instructor
    # expects, `note on` means checks that passed all the same
    checks: dict[str, list[str]] = field(default_factory=dict)
    ungraded: int = 0  # number of further checks that need one of these and were not reached
    printed: str = ""  # the kernels' output in the first of the checks, as far as it was kept

    @property
    def is_minor(self) -> bool:
        """True for missed bonuses, expected failures and notes: nothing went wrong."""
        return self.checks.keys() <= {"missed", "expected", "note on"} and self.finding.code != COMPILER_WARNING

    def take_in(self, other: Reason) -> None:
        """Add another reason's checks to this one."""
        for verdict, names in other.checks.items():
            own = self.checks.setdefault(verdict, [])
            own += [name for name in names if name not in own]
        self.ungraded += other.ungraded

    def heading(self, named: int | None = MAX_NAMED) -> str:
        """Return verdicts and names, such as `FAILED speedup[1.4x], missed 1.8x, 2.4x`.

        At most `named` are listed per verdict, or all for None; a single further one is listed, too.
        """
        names = _without_repeated_kind(name for group in self.checks.values() for name in group)
        parts = []
        for verdict, group in self.checks.items():
            shown = [next(names) for _ in group]
            mark = verdict.upper() if verdict == "failed" else verdict
            parts.append(f"{mark} {', '.join(shown) if named is None else abridged(shown, named)}")
        if self.ungraded:
            it = "it" if sum(map(len, self.checks.values())) == 1 else "them"
            needing = "1 check that needs" if self.ungraded == 1 else f"{self.ungraded} checks that need"
            parts.append(f"and {needing} {it}")
        return ", ".join(parts)


def reasons(grade: Grade, expected: set[tuple[str, str]]) -> list[Reason]:
    """Return the reasons of a grade, and notes on passed checks, each once, in the order of the checks.

    `expected` has (submission, check name) of the failures that the instructor expects.
    """
    found: dict[Finding, Reason] = {}
    for check in grade.checks:
        is_expected = (grade.submission, check.name) in expected
        verdict = "expected" if is_expected else "note on" if check.verdict == "passed" else check.verdict
        for finding in check.findings:
            cause = _cause(finding, verdict, found.values())
            if finding.code == COMPILER_WARNING:  # of the file, whichever checks failed
                found.setdefault(finding, Reason(finding, {"note on": ["compile"]}))
            elif cause is None:
                reason = found.setdefault(finding, Reason(finding, printed=check.printed))
                reason.checks.setdefault(verdict, []).append(_label(check))
            else:
                cause.ungraded += 1
    return list(found.values())


def condensed(found: Iterable[Reason]) -> list[Reason]:
    """Return the reasons; further ones with the code and place of `MAX_SIMILAR` earlier ones are merged.

    Of similar reasons the most telling ones come first, at the place of the first of them.
    """
    kept: list[Reason] = []
    alike: dict[Kind, list[Reason]] = {}
    ordered = list(found)
    kinds = _kinds(ordered)
    for place in _most_telling_first(ordered, kinds):
        reason = ordered[place]
        group = [] if reason.is_minor else alike.setdefault(kinds[place], [])
        if len(group) > MAX_SIMILAR:
            group[-1].take_in(reason)
            continue
        if len(group) == MAX_SIMILAR:
            reason = replace(reason, finding=Finding(reason.finding.code, MORE, reason.finding.where))
        group.append(reason)
        kept.append(reason)
    return kept


def _kinds(found: Sequence[Reason]) -> list[Kind]:
    """Return the kind of each reason: its code, its place, and its smallest input, or else the first one of these."""
    first: dict[tuple[str, str], SmallestInput] = {}
    for reason in found:
        if reason.finding.smallest is not None:
            first.setdefault((reason.finding.code, reason.finding.where), reason.finding.smallest)
    places = [(reason.finding.code, reason.finding.where) for reason in found]
    return [(*at, reason.finding.smallest or first.get(at)) for at, reason in zip(places, found, strict=True)]


def _most_telling_first(found: Sequence[Reason], kinds: Sequence[Kind]) -> list[int]:
    """Return the places of the reasons in their order: per kind the most telling one, then those with an input."""
    ordered = list(range(len(found)))
    places: dict[Kind, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    for group in places.values():
        best, *others = sorted(group, key=lambda place: -found[place].finding.bits)
        others.sort(key=lambda place: found[place].finding.smallest is None)
        for place, reason in zip(group, (best, *others), strict=True):
            ordered[place] = reason
    return ordered


def _label(check: CheckResult) -> str:
    """Return a check's name, with this device's threshold if it is not the one in the name."""
    required = check.other_threshold
    if check.measurement is None or required is None:
        return check.name
    named = _THRESHOLD.search(check.name)
    verb = "is enough" if named and required < float(named[1]) else "is required"
    gpu = "the simulated GPU" if check.measurement.estimated else "this GPU"
    return f"{check.name} ({required:g}x {verb} on {gpu})"


def _cause(finding: Finding, verdict: str, earlier: Iterable[Reason]) -> Reason | None:
    """Return the listed reason that a finding only refers to, if it says the same in full."""
    for reason in earlier:
        if finding.because in reason.checks.get(verdict, ()) and finding.what.endswith(reason.finding.what):
            return reason
    return None


def _without_repeated_kind(names: Iterable[str]) -> Iterator[str]:
    """Yield the names; of several `speedup[...]` in a row only the first says `speedup`."""
    above = ""
    for name in names:
        kind, bracket, rest = name.partition("[")
        inside, _, note = rest.rpartition("]")
        yield inside + note if bracket and kind == above else name
        above = kind
