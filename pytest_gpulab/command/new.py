"""`gpulab new`: write a new exercise from a template."""

import argparse
import os
import sys
from pathlib import Path

from pytest_gpulab.authoring.scaffold import TEMPLATES, scaffold

from . import CommandError, writing

RESERVED = """
alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr continue decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not nullptr operator or private protected public register reinterpret_cast return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor main std
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("name", metavar="NAME", help="the name of the exercise and of its kernel")
    parser.add_argument("--template", choices=tuple(TEMPLATES), default="1d", help="what it computes (default: 1d)")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="the course (default: this folder)")
    parser.epilog = "Writes exercises/NAME and solutions/NAME. `gpulab check exercises/NAME` passes at once."


def run(arguments: argparse.Namespace) -> int:
    """Write the exercise and print its files."""
    name, course = arguments.name, arguments.folder
    if not (name.isidentifier() and name.isascii()):
        raise CommandError(f"{name!r} is no name of a kernel: use letters, digits and _")
    if name in RESERVED.split():
        raise CommandError(f"{name!r} is a word of C++, so no kernel can have this name")
    with writing():
        written = scaffold(name, arguments.template, course / "exercises", course / "solutions")
    sys.stdout.writelines(f"wrote {os.path.relpath(path)}\n" for path in written)
    sys.stdout.write(f"Next: gpulab check {os.path.relpath(course / 'exercises' / name)}\n")
    return 0
