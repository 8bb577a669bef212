"""What each line of a submission did and cost, as plain data: an annotated source listing before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIME_SHARE = "gpulab__time_share.pct"


@dataclass(frozen=True)
class ListedLine:
    """One line of a source file.

    Attributes:
        number: from 1.
        text: as it stands there, cut if it is very long.
        counters: what it did, under the names of `devices.metrics`; empty where no instruction comes from it.
    """

    number: int
    text: str
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def time_share(self) -> float | None:
        """Its share of the estimated time, 0 to 1; None where nothing is estimated of it."""
        percent = self.counters.get(TIME_SHARE)
        return None if percent is None else percent / 100


@dataclass(frozen=True)
class ListedFile:
    """A source file: all lines of the submission, of its headers those that did something."""

    name: str
    lines: tuple[ListedLine, ...]


@dataclass(frozen=True)
class ListedHazard:
    """Something unsafe that a line did; harmless where it cannot change a result."""

    file: str
    line: int
    what: str
    harmless: bool = False


@dataclass(frozen=True)
class Listing:
    """One run of a submission, line by line; or its source, if it cannot be run.

    Attributes:
        size: at which it ran, in words; empty if it did not.
        variant: how it was compiled; empty for the exercise's only one.
        device: the simulated GPU, whatever graded the rest; empty if it was not run.
        estimated_ms: all launches together; None where the run did not come to its end.
        files: the submission first.
        hazards: in the order in which they were found.
        note: why there are no figures, or what is left out.
    """

    size: str
    variant: str
    device: str
    estimated_ms: float | None
    files: tuple[ListedFile, ...]
    hazards: tuple[ListedHazard, ...] = ()
    note: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Listing:
        """Build it from its attributes made of builtins."""
        files = tuple(
            ListedFile(each["name"], tuple(ListedLine(x["number"], x["text"], x["counters"]) for x in each["lines"]))
            for each in data["files"]
        )
        hazards = tuple(ListedHazard(x["file"], x["line"], x["what"], x["harmless"]) for x in data["hazards"])
        figures = (data["size"], data["variant"], data["device"], data["estimated_ms"])
        return cls(*figures, files, hazards, data["note"])
