"""`gpulab explain`: run a submission on one small input and draw what its threads did."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import CommandError

if TYPE_CHECKING:
    from pytest_gpulab.grading.correctness.requests import Request
    from pytest_gpulab.grading.explanation.drawing import Drawn

FAILED = 1
SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.allow_abbrev = False  # an input's name may look like the start of an option
    parser.usage = "gpulab explain FILE.cu [--case NAME]\n       [--n N | --size 3x2] [--INPUT VALUES ...] [OPTIONS]"
    parser.add_argument("file", metavar="FILE.cu", type=Path, help="a submission")
    parser.add_argument("--case", default="", metavar="NAME", help="a case of the exercise, such as n=33")
    parser.add_argument("--n", type=int, metavar="N", help="the number of elements")
    parser.add_argument("--size", metavar="3x2", help="the extents, where a size has several")
    parser.add_argument("--seed", type=int, default=SEED, help=f"the seed of random input data (default: {SEED})")
    parser.add_argument("--exercises", type=Path, metavar="FOLDER", help="the exercises' folder (default: exercises)")
    parser.add_argument(
        "--output", type=Path, metavar="PAGE", help="the page to write (default: FILE.html, or FILE.svg)"
    )
    parser.add_argument(
        "--format", choices=("html", "svg", "text"), default="html", help="a page, one figure, or text only"
    )
    parser.epilog = (
        "Each input of the exercise has an option of its name: --in 1,2,3. A list may hold repeated values (0*256,1) "
        "and ranges (1..257). Without a size and values, the smallest failing input is shown. Exit code: 0 if the "
        "result is right, 1 if it is wrong, not safe, or a larger case fails, 2 for wrong arguments."
    )
    parser.set_defaults(more=[])


def run(arguments: argparse.Namespace) -> int:
    """Print the result of the submission on the chosen input and write its figures; return 1 for a mistake."""
    from pytest_gpulab.devices import open_device
    from pytest_gpulab.grading.compilation.builds import BuildFailed
    from pytest_gpulab.grading.explanation.drawing import Subject, drawn
    from pytest_gpulab.grading.plans.prepare import InstructorsMistake
    from pytest_gpulab.grading.smallest_failing import smallest_failing

    from .submission import exercise_of

    loaded = exercise_of(arguments.file, arguments.exercises)
    device, _ = open_device("sim")
    subject = Subject(loaded, arguments.file, device, arguments.seed, smallest_failing)
    try:
        found = drawn(subject, _request(arguments))
    except BuildFailed as failed:
        raise CommandError(f"{arguments.file}: {failed.finding.what}") from None
    except InstructorsMistake as mistake:
        raise CommandError(f"the exercise does not accept this input: {mistake.finding.what}") from None
    return _report(arguments, found)


def _request(arguments: argparse.Namespace) -> Request:
    from pytest_gpulab.grading.correctness.requests import Request

    words: list[str] = arguments.more
    names = words[::2]
    if len(words) % 2 or not all(name.startswith("--") for name in names):
        raise CommandError(f"not understood: {shlex.join(words)}; write each input as --NAME VALUES, after the file")
    try:
        size = tuple(map(int, arguments.size.split("x"))) if arguments.size else ()
    except ValueError:
        raise CommandError(f"--size {arguments.size}: write the extents as 3x2") from None
    values = {name.removeprefix("--"): word for name, word in zip(names, words[1::2], strict=True)}
    return Request(arguments.case, size or (() if arguments.n is None else (arguments.n,)), values)


def _report(arguments: argparse.Namespace, found: Drawn) -> int:
    from pytest_gpulab.reports.pages.explained_page import summary_lines
    from pytest_gpulab.reports.terminal.explained import drawn_lines
    from pytest_gpulab.reports.terminal.text import wrapped

    trial = found.trial
    own = trial.case.problem(trial.problem.tunables).size
    at = "" if trial.problem.size == own else " at another size"
    summary = [f"{arguments.file}, case {trial.case.name}{at}", *drawn_lines(found)]
    written = [] if arguments.format == "text" else [f"written: {_written(arguments, found, summary)}"]
    lines = [*summary, "", *wrapped(found.note), *summary_lines(found.figures), *written]
    sys.stdout.write("\n".join(lines) + "\n")
    return FAILED if trial.outcome.verdict == "failed" or found.hidden else 0


def _written(arguments: argparse.Namespace, found: Drawn, summary: list[str]) -> Path:
    from pytest_gpulab.reports.pages.explained_page import Explained, single_page, svg
    from pytest_gpulab.reports.terminal.explained import page_lines, wrong_lines

    path: Path = arguments.output or Path(f"{arguments.file.stem}.{arguments.format}")
    try:
        if arguments.format == "html":
            source = arguments.file.read_text(encoding="utf-8", errors="replace")
            lines = wrong_lines(found, arguments.file.name)
            text = single_page(Explained(summary[0], page_lines(found), [found.note], source, found.figures, lines))
        else:
            text = svg(found.figures)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from None
    return path
