"""Annotated source listings, as plain data: counters and costs per line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TIME_SHARE = "gpulab__time_share.pct"


@dataclass(frozen=True)
class ListedLine:
    """One line of a source file."""

    number: int  # from 1
    text: str  # the line, cut if it is very long
    # counters by the names of `devices.hardware.metrics`; empty if no instruction comes from the line
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def time_share(self) -> float | None:
        """Share of the estimated time, 0 to 1; None without an estimate."""
        percent = self.counters.get(TIME_SHARE)
        return None if percent is None else percent / 100


@dataclass(frozen=True)
class ListedFile:
    """A source file: all lines of a submission, or the executed lines of a header."""

    name: str
    lines: tuple[ListedLine, ...]


@dataclass(frozen=True)
class ListedHazard:
    """A hazard of a line; harmless if it cannot change a result."""

    file: str
    line: int
    what: str
    harmless: bool = False


@dataclass(frozen=True)
class Listing:
    """A run of a submission, line by line; or only its source, if it cannot run."""

    size: str  # the size of the run, in words; empty without a run
    variant: str  # the name of the variant; empty for an exercise's only one
    device: str  # the name of the simulated GPU, also if another device grades; empty without a run
    estimated_ms: float | None  # estimate for all launches; None if the run did not finish
    files: tuple[ListedFile, ...]  # the submission first
    hazards: tuple[ListedHazard, ...] = ()  # in the order of discovery
    note: str = ""  # the reason for missing figures or lines
