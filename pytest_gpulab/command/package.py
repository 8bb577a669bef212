"""`gpulab package`: write what an instructor uploads to a learning platform."""

import argparse
import sys
from pathlib import Path

from pytest_gpulab import __version__
from pytest_gpulab.deployment.package import LAYOUTS, write_package
from pytest_gpulab.grading.catalogue import BrokenExercise

from . import CommandError, writing
from .check import exercises_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    help_ = f"the platform, or docker for a student's container: {', '.join(LAYOUTS)}"
    parser.add_argument("platform", choices=tuple(LAYOUTS), metavar="PLATFORM", help=help_)
    parser.add_argument(
        "--exercises", nargs="+", type=Path, required=True, metavar="DIR", help="the exercises' folders"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="a new folder, or a new ZIP")
    image = f"gpulab:{__version__}"
    parser.add_argument("--image", default=image, help=f"the name of the container's image (default: {image})")
    parser.epilog = "NOTES.md in OUT says what to do with it."


def run(arguments: argparse.Namespace) -> int:
    """Write the package and print its files."""
    folders = exercises_in(arguments.exercises)
    if len({folder.parent for folder in folders}) > 1:
        raise CommandError("the exercises of a package are in one folder")
    try:
        with writing():
            files = write_package(arguments.platform, folders, arguments.out, arguments.image)
    except BrokenExercise as broken:
        raise CommandError(f"{broken.name}: {broken.problems[0]}") from None
    sys.stdout.writelines(f"{name}\n" for name in files if "/exercises/" not in f"/{name}")
    sys.stdout.write(f"wrote {arguments.out}; NOTES.md says what to do with it\n")
    return 0
