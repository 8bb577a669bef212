"""A new exercise from a template, and a new course with a copy of the shipped exercises.

Both pass all checks, so that an instructor changes working ones.
"""

import shutil
from importlib.resources import files
from pathlib import Path
from string import Template

import pytest_gpulab
from pytest_gpulab.exercise import Exercise
from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.catalogue import Catalogue

from .readme import points_table

TEMPLATES = {
    "1d": "an element per thread, of one input",
    "2d": "an element per thread, of a matrix",
    "reduction": "one sum of all elements, by atomics",
    "atomic": "a histogram",
}
"""Templates and what they compute."""

README = """# $title

Write the kernel `$name` in `$name.cu`. The comment there has the task; `naive.cu` is a slow solution.

## Grading

$points

## How to run

    pytest --gpulab exercises/$name/$name.cu
"""
SOLUTION = "01_first.cu"
EXPECTED = """# The points of each solution, and the checks that it must fail. A missed bonus is no failure.

["01_first.cu"]
points = $points
"""

FOLDERS = ("exercises", "solutions")
FILES = {name: name for name in ("README.md", "INSTRUCTOR.md", "pyproject.toml")} | {"gitignore": ".gitignore"}
"""Files of `templates/course` with their names in a course."""


def scaffold(name: str, template: str, exercises: Path, solutions: Path) -> list[Path]:
    """Write an exercise and its solution from a key of `TEMPLATES`; return the files.

    The exercise and its kernel have the same name, a C++ identifier. Raises FileExistsError if a folder exists.
    """
    folder, solved = exercises / name, solutions / name
    for new in (folder, solved):
        new.mkdir(parents=True)
    names = {"name": name, "title": name.replace("_", " ").capitalize()}
    source = files(__package__) / "templates" / template
    targets = {
        "exercise.py.txt": folder / "exercise.py",
        NAIVE: folder / NAIVE,
        "skeleton.cu": folder / f"{name}.cu",
        "solution.cu": solved / SOLUTION,
    }
    for file, target in targets.items():
        text = Template((source / file).read_text(encoding="utf-8")).substitute(names)
        target.write_text(text, encoding="utf-8")
    exercise = Catalogue(exercises).load(name).exercise
    assert isinstance(exercise, Exercise)
    readme, expected = folder / "README.md", solved / "expected.toml"
    readme.write_text(Template(README).substitute(names, points=points_table(exercise)), encoding="utf-8")
    expected.write_text(Template(EXPECTED).substitute(points=100), encoding="utf-8")
    return [*targets.values(), readme, expected]


def shipped(name: str) -> Path:
    """Return the shipped folder `exercises` or `solutions`: in an installed package, else in the repository."""
    package = Path(pytest_gpulab.__file__).parent
    installed = package / "shipped" / name
    return installed if installed.is_dir() else package.parent / name


def write_course(folder: Path) -> list[Path]:
    """Write a course repository: exercises, solutions, settings, READMEs. Return its files and folders.

    Other files in the folder stay as they are. Raises FileExistsError if one of the course's exists.
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
