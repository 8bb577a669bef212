"""`gpulab check`: check exercises before a student meets them."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import CommandError

SEED = 1
MUTATE_S = 60
PROGRESS_S = 10.0  # between two lines where they do not replace each other


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="an exercise, or a folder of exercises")
    parser.add_argument(
        "--solutions",
        type=Path,
        metavar="FOLDER",
        help="solutions by exercise (default: solutions beside the exercises)",
    )
    parser.add_argument("--no-solutions", action="store_true", help="grade the baselines only")
    parser.add_argument("--mutate", action="store_true", help="grade solutions with small mistakes; list the survivors")
    parser.add_argument(
        "--mutate-seconds",
        type=_seconds,
        default=MUTATE_S,
        metavar="S",
        help=f"time limit of --mutate per exercise (default: {MUTATE_S})",
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"the seed of the input data (default: {SEED})")
    parser.epilog = "Exit code: 0 without errors, 1 with errors, 2 for wrong arguments."


def run(arguments: argparse.Namespace) -> int:
    """Print a report per exercise; return 1 if one has an error."""
    from pytest_gpulab.authoring.check import check_exercise
    from pytest_gpulab.devices import open_device
    from pytest_gpulab.grading.catalogue import Catalogue
    from pytest_gpulab.grading.time_limits import OWN_CODE

    chosen = exercises_in(arguments.folders)
    if arguments.solutions and not arguments.solutions.is_dir():
        raise CommandError(f"--solutions={arguments.solutions}: there is no such folder")
    device, _ = open_device("sim")
    errors, mutate_s = 0, arguments.mutate_seconds if arguments.mutate else None
    for folder in chosen:
        solutions = None if arguments.no_solutions else _solutions_of(folder, arguments.solutions)
        given = (folder.name, device, arguments.seed, solutions, mutate_s)
        progress = _Progress()
        OWN_CODE.notify = _notice(folder.name)
        report = check_exercise(Catalogue(folder.parent), *given, progress)
        progress.clear()
        errors += report.errors
        text = "\n".join(report.lines()).replace(f"{Path.cwd()}{os.sep}", "")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    return int(errors > 0)


def _notice(name: str) -> Callable[[str], None]:
    """Return a function that writes a line about an exercise to standard error."""

    def write(line: str) -> None:
        sys.stderr.write(f"{name}: {line}\n")
        sys.stderr.flush()

    return write


class _Progress:
    """A progress line on standard error: one that is rewritten on a terminal, else a new one every ten seconds."""

    def __init__(self) -> None:
        self._shown_s = time.monotonic()

    def __call__(self, line: str) -> None:
        is_terminal, now_s = sys.stderr.isatty(), time.monotonic()
        if is_terminal or now_s - self._shown_s > PROGRESS_S:
            self._shown_s = now_s
            sys.stderr.write(f"\r\x1b[K{line}" if is_terminal else f"{line}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


def exercises_in(folders: Sequence[Path]) -> list[Path]:
    """Return the exercise folders that are named, or in named folders; raise CommandError for a folder without any."""
    found: list[Path] = []
    for folder in map(Path.resolve, folders):
        if not folder.is_dir():
            raise CommandError(f"there is no folder {folder}")
        inside = [folder] if (folder / "exercise.py").is_file() else [p.parent for p in folder.glob("*/exercise.py")]
        if not inside:
            raise CommandError(f"{folder} has no exercise: a folder with an exercise.py")
        found += sorted(inside)
    return list(dict.fromkeys(found))


def _solutions_of(folder: Path, given: Path | None) -> Path | None:
    solutions = given.resolve() if given else folder.parents[1] / "solutions"
    return solutions / folder.name if solutions.is_dir() else None
