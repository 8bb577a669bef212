"""The shipped exercises and solutions, and a course repository that begins with a copy of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest_gpulab

FOLDERS = ("exercises", "solutions")
FILES = {"README.md": "README.md", "INSTRUCTOR.md": "INSTRUCTOR.md"} | {
    "pyproject.toml": "pyproject.toml",
    "gitignore": ".gitignore",
}
"""Files of `templates/course` with their names in a course."""


def shipped(name: str) -> Path:
    """Return the shipped folder `exercises` or `solutions`: in an installed package, else in the repository."""
    package = Path(pytest_gpulab.__file__).parent
    installed = package / "shipped" / name
    return installed if installed.is_dir() else package.parent / name


def write_course(folder: Path) -> list[Path]:
    """Write a course repository: exercises, solutions, settings, READMEs. Return its files and folders.

    Args:
        folder: the course, which may exist. Its other files stay as they are.

    Raises:
        FileExistsError: one of the files or folders exists.
    """
    templates = Path(__file__).parent / "templates" / "course"
    sources = {folder / name: shipped(name) for name in FOLDERS}
    sources |= {folder / name: templates / template for template, name in FILES.items()}
    for target in sources:
        if target.exists():
            raise FileExistsError(17, "exists already", str(target))
    folder.mkdir(parents=True, exist_ok=True)
    for target, source in sources.items():
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    return list(sources)
