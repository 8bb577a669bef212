"""`gpulab handout`: write the students' copy of a course."""

import argparse
import sys
from pathlib import Path

from pytest_gpulab.authoring.handout import write_handout

from . import writing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the course, with exercises/")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder, or a new ZIP that ends in .zip")
    parser.epilog = (
        "The copy has no solutions and no hidden cases. A folder has only the files that its exercise needs."
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the copy and print what it has."""
    with writing():
        handout = write_handout(arguments.folder, arguments.out)
    sys.stdout.writelines(f"{line}\n" for line in handout.lines)
    sys.stdout.writelines(f"Look at {note}.\n" for note in handout.notes)
    sys.stdout.write(f"wrote {arguments.out}\n")
    return 0
