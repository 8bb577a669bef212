"""`gpulab grade`: grade one student's files for a learning platform."""

import argparse
import os
import sys
from pathlib import Path

from pytest_gpulab.deployment.platforms import PLATFORMS

from . import CommandError
from .check import exercises_in

LIMIT_S = 540.0  # of the ten minutes that platforms allow by default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("submission", nargs="+", type=Path, metavar="FILE", help="the student's files, or a folder")
    platforms = f"the platform: {', '.join(PLATFORMS)}"
    parser.add_argument(
        "--for", dest="platform", choices=tuple(PLATFORMS), required=True, metavar="PLATFORM", help=platforms
    )
    parser.add_argument("--exercises", type=Path, required=True, metavar="DIR", help="an exercise, or a folder of them")
    parser.add_argument("--result", type=Path, metavar="FILE", help="the result file (default: where it is expected)")
    parser.add_argument("--device", default="auto", help="auto (default), sim, cuda or cuda:N")
    limit = f"time limit of grading (default: {LIMIT_S:g})"
    parser.add_argument("--timeout", type=float, default=LIMIT_S, metavar="SECONDS", help=limit)
    parser.add_argument(
        "--programs", action="store_true", help="grade whole programs: the student's host code runs, in a sandbox"
    )
    parser.epilog = (
        "The result file is written in any case. Exit code: 0 if there is a result; for classroom50 1 if nothing could "
        "be graded; for github 1 if required checks failed, 2 if nothing could be graded."
    )


def run(arguments: argparse.Namespace) -> int:
    """Grade, print the points or the reason why there are none, and return the platform's exit code."""
    from pytest_gpulab.deployment.autograder import Request, grade
    from pytest_gpulab.reports.context import ReportError

    _forget_submission(arguments.submission)
    if not arguments.timeout > 0:
        raise CommandError("--timeout is a number of seconds greater than 0")
    folders = exercises_in([arguments.exercises])
    result = (arguments.result or PLATFORMS[arguments.platform].result).absolute()
    if arguments.platform != "github" and result.suffix != ".json":
        raise CommandError("--result is the file of one student and ends in .json")
    request = Request(
        platform=arguments.platform,
        submission=tuple(path.absolute() for path in arguments.submission),
        exercises=folders[0].parent,
        names=tuple(folder.name for folder in folders),
        result=result,
        device=arguments.device,
        limit_s=arguments.timeout,
        programs=arguments.programs,
    )
    try:
        outcome = grade(request)
    except (OSError, ReportError) as error:
        raise CommandError(str(error)) from None
    lines = [f"{note}\n" for note in outcome.notes]
    lines += [f"gpulab grade: {outcome.line}; wrote {os.path.relpath(result)}\n"]
    sys.stdout.write(outcome.log + "".join(lines))
    return outcome.code


def _forget_submission(submission: list[Path]) -> None:
    """Import nothing from the student's folders, which `python -m` adds if one of them is the working folder."""
    theirs = [path.resolve() for path in submission]
    sys.path[:] = [entry for entry in sys.path if not any(Path(entry).resolve().is_relative_to(p) for p in theirs)]
