"""`gpulab check`: check exercises before a student meets them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import CommandError

SEED = 1


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
    parser.add_argument("--seed", type=int, default=SEED, help=f"the seed of the input data (default: {SEED})")
    parser.epilog = "Exit code: 0 without errors, 1 with errors, 2 for wrong arguments."


def run(arguments: argparse.Namespace) -> int:
    """Print a report per exercise; return 1 if one has an error."""
    from pytest_gpulab.authoring.check import check_exercise
    from pytest_gpulab.devices import open_device
    from pytest_gpulab.grading.catalogue import Catalogue

    chosen = exercises_in(arguments.folders)
    device, _ = open_device("sim")
    errors = 0
    for folder in chosen:
        solutions = None if arguments.no_solutions else _solutions_of(folder, arguments.solutions)
        report = check_exercise(Catalogue(folder.parent), folder.name, device, arguments.seed, solutions)
        errors += report.errors
        text = "\n".join(report.lines()).replace(f"{Path.cwd()}{os.sep}", "")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    return int(errors > 0)


def exercises_in(folders: Sequence[Path]) -> list[Path]:
    """Return the exercise folders that are named, or are in the named folders.

    Raises:
        CommandError: a folder does not exist or has no exercise.
    """
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
    solutions = (given.resolve() if given else folder.parents[1] / "solutions") / folder.name
    return solutions if solutions.is_dir() else None
