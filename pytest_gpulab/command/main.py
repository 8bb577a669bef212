"""The command line: a table of subcommands, each loaded when it is chosen."""

import argparse
import codecs
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from pytest_gpulab import UserError, __version__
from pytest_gpulab.devices.system.processes import with_one_thread
from pytest_gpulab.reports.terminal.text import as_wide_as, terminal_columns

SUBCOMMANDS = {
    "run": "run a whole CUDA program, with no GPU",
    "explain": "run a submission on one small input and show its result",
    "grade": "grade one student's files for a learning platform",
    "package": "write what an instructor uploads to a learning platform",
    "watch": "grade a file again whenever it is saved",
    "new": "write a new exercise from a template",
    "check": "check exercises before a student meets them",
    "course": "write a course repository with the shipped exercises",
    "handout": "write the students' copy of a course, without solutions and hidden cases",
    "device": "print the properties of the machine's GPUs, or of a modelled GPU",
    "occupancy": "print the occupancy of a launch, and of other block sizes",
    "include": "print the folder of gpulab.cuh, for nvcc's option -I",
}
"""Subcommands with their lines in the help."""

USAGE_ERROR = 2
INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line without the program's name, by default that of the process; return its exit code."""
    given = sys.argv[1:] if words is None else list(words)
    chosen, parser = _parser(given)
    arguments, more = parser.parse_known_args(getattr(chosen, "normalized", list)(given))
    if more and not hasattr(arguments, "more"):  # `explain` has an option per input of an exercise
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    arguments.more = more
    if chosen is None:
        parser.print_help()
        return 0
    _print_all_letters()
    try:
        with as_wide_as(terminal_columns()):
            return int(chosen.run(arguments))
    except UserError as error:
        sys.stderr.write(f"gpulab {arguments.subcommand}: {error}\n")
        return USAGE_ERROR
    except KeyboardInterrupt:
        sys.stderr.write(f"gpulab {arguments.subcommand}: interrupted\n")
        return INTERRUPTED


def _print_all_letters() -> None:
    """Let standard output print letters that its encoding lacks as escapes, and bytes of file names as they are."""
    codecs.register_error("gpulab", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # in a forked process, a pipe may have replaced a file: Python cannot ask its position
            sys.stdout.reconfigure(errors="gpulab")


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _parser(given: Sequence[str]) -> tuple[ModuleType | None, argparse.ArgumentParser]:
    """Return the module of the chosen subcommand, if one is chosen, and the parser. Other modules are not loaded."""
    parser = argparse.ArgumentParser("gpulab", description="Tools for CUDA code, with or without a GPU.")
    parser.add_argument("--version", action="version", version=f"pytest-gpulab {__version__}")
    subparsers = parser.add_subparsers(title="subcommands", dest="subcommand", metavar="SUBCOMMAND")
    word = next((word for word in given if not word.startswith("-")), None)
    chosen = None
    for name, line in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        if name == word:
            if name != "run":  # its program inherits the environment
                os.environ.update(with_one_thread(os.environ))  # before NumPy is loaded
            chosen = import_module(f"{__package__}.{name}")
            chosen.add_arguments(subparser)
    return chosen, parser
