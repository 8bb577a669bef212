"""A new exercise from a template: it passes all checks, so that an instructor changes a working one."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template

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


def scaffold(name: str, template: str, exercises: Path, solutions: Path) -> list[Path]:
    """Write an exercise and its solution; return the files.

    Args:
        name: the exercise's and the kernel's name, a C++ identifier.
        template: a key of `TEMPLATES`.
        exercises, solutions: the folders of all exercises and of all solutions.

    Raises:
        FileExistsError: the exercise's or the solution's folder exists.
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
