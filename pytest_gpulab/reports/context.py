"""What writers of report files are told besides the grades, and how they say that they cannot write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone


class ReportError(Exception):
    """A report that cannot be written as asked, in one line for whoever asked."""


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Context:
    """The run that a report is about.

    Attributes:
        interrupted: whether it was stopped: some checks or submissions are missing.
        started, finished: in UTC.
        environment: the process's variables; some learning platforms tell there whose submission it is.
    """

    interrupted: bool = False
    started: datetime = field(default_factory=_now)
    finished: datetime = field(default_factory=_now)
    environment: Mapping[str, str] = field(default_factory=dict)

    def refuse_if_interrupted(self) -> None:
        """Keep a part of the points from being taken for a student's result.

        Raises:
            ReportError: the run was stopped.
        """
        if self.interrupted:
            raise ReportError("the run was stopped before everything was graded")
