"""The figures for `--gpulab-report=explain:PAGE`: drawn after grading, on the simulated GPU. Knows no pytest.

Only visible checks are drawn, because students read the page, too.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import LoadedProgram
from pytest_gpulab.grading.correctness.requests import Request, request_of
from pytest_gpulab.grading.explanation.drawing import Subject, drawn
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.reports.gradebook import Drawing, Drawings
from pytest_gpulab.reports.pages.explained_page import Explained, section
from pytest_gpulab.reports.terminal.explained import page_lines, wrong_lines

from .session import GradingSession

MAX_S = 30.0  # after this time, no further figure is begun
MAX_STOPPED_S = 3.0  # after Ctrl-C or -x
MAX_BYTES = 1_900_000  # of all sections: a page has at most 2 MB
MAX_NAMED = 3  # checks in a title
NO_INPUT = "no small failing input is known"

Located = Callable[[str, Path], Path]
"""Returns the file of a submission, by its name in grades; the folder takes copies."""


@dataclass(frozen=True)
class Wanted:
    """A figure to draw."""

    grade: Grade
    checks: tuple[str, ...]  # the checks that fail on the input; empty for a submission that passed
    command: str  # that of the smallest failing input; empty for one that passed, or if none is known

    @property
    def title(self) -> str:
        """The submission with the first checks."""
        first, more = ", ".join(self.checks[:MAX_NAMED]), len(self.checks) - MAX_NAMED
        return f"{self.grade.submission}: {first or 'passed'}{f' and {more} more' if more > 0 else ''}"


def drawings(session: GradingSession, grades: Sequence[Grade], located: Located, page: Path, stopped: bool) -> Drawings:
    """Return the figures of failed checks, then those of submissions that passed, within the limits.

    There is little time left if the run was `stopped`.
    """
    limit_s = MAX_STOPPED_S if stopped else MAX_S
    end_s, room = time.monotonic() + limit_s, MAX_BYTES
    drawn: list[Drawing] = []
    left_out: list[str] = []
    device, _ = open_device("sim")
    with tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
        for number, wanted in enumerate(sorted(_wanted(grades), key=lambda each: not each.checks), start=1):
            if time.monotonic() > end_s:
                left_out.append(f"{wanted.title} (drawing ends after {limit_s:g} s)")
                continue
            found = _drawn(session, wanted, device, located, Path(folder), f"figure-{number}")
            if isinstance(found, str):
                left_out.append(f"{wanted.title} ({found})")
            elif len(found.html.encode()) > room:
                left_out.append(f"{wanted.title} (the page would have more than 2 MB)")
            else:
                room -= len(found.html.encode())
                drawn.append(found)
    device.close()
    return Drawings(page, tuple(drawn), tuple(left_out))


def _wanted(grades: Sequence[Grade]) -> Iterator[Wanted]:
    """Yield a figure per submission and smallest failing input, and one per submission that passed."""
    for grade in grades:
        by_command: dict[str, list[str]] = {}
        failed = [check for check in grade.checks if check.verdict == "failed" and check.kind in ("correct", "safe")]
        for check in failed:
            own = [found for found in check.findings if not (check.hidden or found.hidden or found.because)]
            for command in dict.fromkeys(found.smallest.command if found.smallest else "" for found in own):
                by_command.setdefault(command, []).append(check.name)
        yield from (Wanted(grade, tuple(checks), command) for command, checks in by_command.items())
        if any(check.kind == "correct" for check in grade.checks) and _has_passed(grade):
            yield Wanted(grade, (), "")


def _has_passed(grade: Grade) -> bool:
    return all(check.verdict == "passed" for check in grade.checks if check.kind in ("compile", "correct", "safe"))


def _drawn(
    session: GradingSession, wanted: Wanted, device: Device, located: Located, folder: Path, place: str
) -> Drawing | str:
    """Return the figures, or the reason why there are none."""
    if wanted.checks and not wanted.command:
        return NO_INPUT
    try:
        explained = _explained(session, wanted, device, located(wanted.grade.submission, folder))
        html = str(section(explained, place, level=2))
    except Exception as error:  # no figure may cost the run its other reports
        return f"it cannot be drawn: {error or type(error).__name__}"
    return Drawing(wanted.grade.submission, wanted.command, place, wanted.title, html)


def _explained(session: GradingSession, wanted: Wanted, device: Device, path: Path) -> Explained:
    loaded = session.catalogue.load(wanted.grade.exercise)
    if isinstance(loaded, LoadedProgram):
        raise ValueError("the exercise asks for a whole program")
    request = request_of(wanted.command) if wanted.command else Request()
    found = drawn(Subject(loaded, path, device, session.settings.seed, None), request)
    source = path.read_text(encoding="utf-8", errors="replace")
    lines = wrong_lines(found, path.name)
    return Explained(wanted.title, page_lines(found), [found.note], source, found.figures, lines)
