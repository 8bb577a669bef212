"""Input of report writers besides the grades, and their error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from pytest_gpulab import UserError


class ReportError(UserError):
    """A report that cannot be written, explained in one line."""


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Context:
    """The run that a report is about."""

    interrupted: bool = False  # whether it was stopped, so that checks or submissions are missing
    started: datetime = field(default_factory=_now)  # in UTC
    finished: datetime = field(default_factory=_now)  # in UTC
    # the process's environment variables; some learning platforms name the student there
    environment: Mapping[str, str] = field(default_factory=dict)

    def refuse_if_interrupted(self) -> None:
        """Raise ReportError if the run was stopped: a part of the points is not a student's result."""
        if self.interrupted:
            raise ReportError("the run was stopped before everything was graded")
