"""Grade a submission; a result file is written in any case."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.course.intake.archive import CannotUnpack
from pytest_gpulab.course.intake.submissions import Collection, handed_in_by_one
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.files.github import SUMMARY
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.students import points_text, the_only_row

from . import child
from .platforms import PLATFORMS
from .result import NotGraded, gradebook

STOPPED = "The grader was stopped from outside before it had finished."


@dataclass(frozen=True)
class Request:
    """A submission to grade for a platform."""

    platform: str  # a name in `PLATFORMS`
    submission: tuple[Path, ...]  # the student's files or folders
    exercises: Path
    names: tuple[str, ...]  # the exercises that count
    result: Path  # the path of the result file
    device: str = "auto"  # as for `--gpulab-device`
    limit_s: float = 540.0
    programs: bool = False  # as `--gpulab-programs`: whether host code of the student runs, in a sandbox


@dataclass(frozen=True)
class Outcome:
    """The end of grading."""

    code: int  # the exit code for the platform
    line: str  # the points, or the reason why there are none
    log: str  # pytest's output, as far as the readers of this command's output may see it
    notes: tuple[str, ...] = ()  # which of several files for an exercise counts, and whether grading was stopped


def grade(request: Request) -> Outcome:
    """Grade the submission and write the result file.

    The file exists from the start with the reason that grading was stopped, in case this process is killed. A file of
    that name that the student handed in is replaced. Raises ReportError if the result file cannot be written at all.
    """
    platform, context = PLATFORMS[request.platform], Context(environment=os.environ)
    request.result.parent.mkdir(parents=True, exist_ok=True)
    if request.result.is_symlink():
        request.result.unlink()  # a link of the student's
    formats.check(request.platform, request.result, context)
    # it is replaced later; GitHub's summary can only grow
    without_summary = {name: value for name, value in os.environ.items() if name != SUMMARY}
    formats.write_not_graded(request.platform, request.result, STOPPED, Context(environment=without_summary))
    log = ""
    try:
        book, log = _graded(request)
        formats.write(request.platform, request.result, book, context)
    except (NotGraded, ReportError) as error:
        text = error.text if isinstance(error, NotGraded) else _as_sentence(request, error)
        formats.write_not_graded(request.platform, request.result, text, context)
        return Outcome(platform.not_graded, f"not graded: {text}", error.log if isinstance(error, NotGraded) else log)
    row = the_only_row(book)
    line = f"{points_text(row.points.earned)} of {points_text(row.points.graded)} points"
    has_passed = all(check.verdict in ("passed", "inconclusive", "missed") for check in row.checks)
    return Outcome(0 if has_passed else platform.failed, line, log if platform.is_log_private else "", book.problems)


def _graded(request: Request) -> tuple[Gradebook, str]:
    with child.private_folder() as (folder, cleaner):
        unpacked, graded = folder / "unpacked", folder / "submission"
        unpacked.mkdir()
        graded.mkdir()
        try:
            for path in request.submission:
                if not path.suffix:  # a folder, not a file that the student forgot
                    path.stat()
            files = handed_in_by_one(request.submission, request.names, request.exercises, unpacked)
            sources = _copies(files, request.names, graded)
        except (OSError, CannotUnpack) as error:
            raise NotGraded(f"The submission cannot be read: {error}.") from error
        report = folder / "grades.json"
        more = ["--gpulab-programs"] if request.programs else []
        ended = child.run(sources, graded, cleaner, report, request.exercises, request.device, request.limit_s, more)
        catalogue = Catalogue(request.exercises)
        return gradebook(report, ended, request.limit_s, files, catalogue, request.names), ended.log


def _copies(files: Collection, exercises: Sequence[str], folder: Path) -> list[Path]:
    """Copy the file of each exercise into a folder with nothing else; for one without a file, the log says so."""
    contents = {exercise: f"#error There is no {exercise}.cu to grade.\n".encode() for exercise in exercises}
    contents |= {each.exercise: each.read() for each in files.submissions}
    copies = [folder / f"{exercise}.cu" for exercise in contents]
    for copy, source in zip(copies, contents.values(), strict=True):
        copy.write_bytes(source)
    return copies


def _as_sentence(request: Request, error: ReportError) -> str:
    """Return the reason of a report writer without the path of the file."""
    reason = str(error).removeprefix(f"cannot write the report {request.result}: ")
    with suppress(IndexError):
        reason = reason[0].upper() + reason[1:]
    return reason if reason.endswith(".") else f"{reason}."
