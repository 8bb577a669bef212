"""One submission's grade as the instructor's and the students' pages show it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from markupsafe import Markup

from pytest_gpulab.grading.grade import CheckResult, Grade
from pytest_gpulab.reports.terminal import annotated
from pytest_gpulab.reports.terminal.reasons import MORE, Reason, condensed, reasons
from pytest_gpulab.reports.terminal.table import overall_verdict, timings

from . import annotated_html
from .environment import lines

_MAX_PRINTED = 4000
_WORDS = {MORE: "more of the same"}  # there is no option that shows all of them on a page


@dataclass(frozen=True)
class ShownListing:
    """An annotated source: its title, and the table as HTML (`Markup`)."""

    heading: str
    table: Any


@dataclass(frozen=True)
class GradeView:
    """A grade for a template; `expected` are the failures that the instructor expects."""

    grade: Grade
    expected: Collection[tuple[str, str]] = ()

    @property
    def verdict(self) -> str:
        """The verdict of the worst check."""
        return overall_verdict(self.grade)

    @property
    def as_expected(self) -> bool:
        """True if it fails and the instructor expects each of its failures."""
        failed = {(self.grade.submission, check.name) for check in self.grade.checks if check.verdict == "failed"}
        return bool(failed) and failed <= set(self.expected)

    @property
    def passed(self) -> int:
        """Number of passed checks."""
        return sum(check.verdict == "passed" for check in self.grade.checks)

    @cached_property
    def reasons(self) -> list[Reason]:
        """Reasons why checks did not pass, similar ones together, each hint and input once."""
        said: set[object] = set()
        shown = []
        for reason in condensed(reasons(self.grade, set(self.expected))):
            finding = reason.finding.without(said)
            said |= {finding.hint, finding.smallest}
            shown.append(replace(reason, finding=replace(finding, what=_WORDS.get(finding.what, finding.what))))
        return shown

    @cached_property
    def measured(self) -> list[CheckResult]:
        """The checks with a time."""
        return [check for check in self.grade.checks if check.measurement is not None]

    @property
    def estimated(self) -> bool:
        """True if a cost model estimated the times."""
        return any(measurement.estimated for measurement in timings(self.grade).values())

    @property
    def sizes(self) -> str:
        """Problem size of the timing."""
        return " and ".join(sorted({measurement.size for measurement in timings(self.grade).values()}))

    @property
    def limits(self) -> list[str]:
        """Bottlenecks of the kernels that no hint mentions, each with its measurement, to follow "Limited by"."""
        hints = " ".join(reason.finding.hint for reason in self.reasons)
        return [
            f"{f' ({label})' if label else ''}: {timed.bottleneck}"
            for label, timed in timings(self.grade).items()
            if timed.bottleneck and timed.bottleneck not in hints
        ]

    @property
    def printed(self) -> list[tuple[str, Any]]:
        """Output of kernels by check, cut if it is long."""
        return [(check.name, lines([check.printed[:_MAX_PRINTED]])) for check in self.grade.checks if check.printed]

    @property
    def listings(self) -> list[ShownListing]:
        """The annotated sources."""
        return [
            ShownListing(annotated.title(listing), Markup("\n".join(annotated_html.section(self.grade, listing))))
            for listing in annotated.listings(self.grade)
        ]
