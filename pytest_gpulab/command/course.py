"""`gpulab course`: write a course repository."""

import argparse
import os
import sys
from pathlib import Path

from pytest_gpulab.authoring.scaffold import write_course

from . import writing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the course")
    parser.epilog = "Writes the shipped exercises with their solutions, settings for pytest, and a README for students."


def run(arguments: argparse.Namespace) -> int:
    """Write the course and print its files and folders."""
    with writing():
        written = write_course(arguments.folder)
    for path in written:
        sys.stdout.write(f"wrote {os.path.relpath(path)}{os.sep if path.is_dir() else ''}\n")
    sys.stdout.write(f"Next: cd {os.path.relpath(arguments.folder)} && gpulab check exercises\n")
    return 0
