"""The students' copy of a course: no solutions, no hidden cases, and only files that an exercise needs."""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpulab import UserError
from pytest_gpulab.exercise import Case, Exercise
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue, Loaded, LoadedExercise
from pytest_gpulab.grading.correctness.sizes import extents_of
from pytest_gpulab.numerics import ALL_PATTERNS

from .plans import baselines_of, solution_in
from .visible import INSTEAD, ComputedHidden, without_hidden_cases

TOP_FILES = ("README.md", "pyproject.toml", ".gitignore")
HIDDEN_SECTION = "\n## Hidden cases\n\nYour instructor grades further cases, which this copy lacks:\n\n"


class HandoutError(UserError):
    """A course of which no copy can be made: one line."""


@dataclass
class Handout:
    """A copy that was written: a line on each exercise, and a line per place that an instructor should look at."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write_handout(course: Path, out: Path) -> Handout:
    """Write the students' copy into a new folder, or into a new ZIP if `out` ends in `.zip`.

    Raises HandoutError if the course has no exercise, an exercise is broken, a skeleton is a solution, or a hidden case
    cannot be removed, and FileExistsError if `out` exists.
    """
    if out.exists():
        raise FileExistsError(17, "exists already", str(out))
    catalogue = Catalogue(course / "exercises")
    if not catalogue.names:
        raise HandoutError(f"{course} has no exercise: a folder exercises/NAME with an exercise.py")
    handout = Handout()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / out.stem
        copy.mkdir()
        for name in TOP_FILES:
            if (course / name).is_file():
                shutil.copyfile(course / name, copy / name)
        _copy_exercises(catalogue, copy, handout)
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".zip":
            shutil.make_archive(str(out.with_suffix("")), "zip", folder)
        else:
            shutil.copytree(copy, out)
    return handout


def _copy_exercises(catalogue: Catalogue, copy: Path, handout: Handout) -> None:
    calibrations = catalogue.folder / "calibration"
    if calibrations.is_dir():
        shutil.copytree(calibrations, copy / "exercises" / "calibration", ignore=_no_toml)
    hidden_points, kernels = {}, dict[str, Exercise]()
    for name in catalogue.names:
        loaded = _loaded(catalogue, name)
        skeleton, solutions = loaded.folder / f"{name}.cu", catalogue.folder.parent / "solutions" / name
        if skeleton.is_file() and (solution := solution_in(skeleton, solutions)):
            raise HandoutError(f"{name}: {skeleton.name} has the code of the solution {solution.name}: remove it there")
        if isinstance(loaded, LoadedExercise):
            kernels[name] = loaded.exercise
        elif any(case.hidden for case in loaded.exercise.cases):
            raise HandoutError(f"{name}: hidden cases of an exercise that asks for a program stay in it; {INSTEAD}")
        hidden_points[name] = sum(case.points for case in loaded.exercise.cases if case.hidden)
        handout.lines.append(_copy_exercise(loaded, copy / "exercises" / name, hidden_points[name]))
    readme = copy / "README.md"
    if any(hidden_points.values()) and readme.is_file():
        table = "".join(f"- {name}: {points:g} points\n" for name, points in hidden_points.items() if points)
        readme.write_text(readme.read_text(encoding="utf-8") + HIDDEN_SECTION + table, encoding="utf-8")
    for name, exercise in kernels.items():
        _compare(exercise, Catalogue(copy / "exercises"), name)
    for bytecode in sorted(copy.rglob("__pycache__")):  # of the copies, which were loaded to be compared
        shutil.rmtree(bytecode)
    for name, exercise in kernels.items():
        handout.notes += _traces(exercise, name, copy)


def _no_toml(_: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".toml")]


def _loaded(catalogue: Catalogue, name: str) -> Loaded:
    try:
        return catalogue.load(name)
    except BrokenExercise as broken:
        raise HandoutError(f"{name}: {broken.problems[0]}") from None


def _copy_exercise(loaded: Loaded, target: Path, hidden_points: float) -> str:
    """Copy the files that an exercise needs; return a line about the copy."""
    files = sorted(path for path in loaded.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    handed_out = _needed(loaded, files, hidden_points)
    for path, contents in handed_out.items():
        copied = target / path.relative_to(loaded.folder)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(contents)
    cases = loaded.exercise.cases
    visible = sum(not case.hidden for case in cases)
    parts = [f"{loaded.name}: {visible} of {len(cases)} cases"]
    parts += [f"{hidden_points:g} points are hidden"] if hidden_points else []
    if left_out := [path.relative_to(loaded.folder).as_posix() for path in files if path not in handed_out]:
        parts.append(f"left out: {', '.join(left_out)}")
    return "; ".join(parts)


def _needed(loaded: Loaded, files: list[Path], hidden_points: float) -> dict[Path, bytes]:
    """Return the contents of the exercise's files, of modules that these import, and of files that they name."""
    own = {"exercise.py", "README.md", f"{loaded.name}.cu", *loaded.exercise.headers}
    own.update(baselines_of(loaded) if isinstance(loaded, LoadedExercise) else ())
    needed = dict[Path, bytes]()
    more = [path for path in files if path.relative_to(loaded.folder).as_posix() in own]
    while more:
        needed |= {path: _contents(path, loaded, hidden_points) for path in more}
        texts = {path: needed[path].decode("utf-8", "replace") for path in needed if path.suffix in (".py", ".md")}
        imported = {name for path, text in texts.items() if path.suffix == ".py" for name in _imports(text)}
        more = [path for path in files if path not in needed and _is_named(path, loaded.folder, texts, imported)]
    return needed


def _contents(path: Path, loaded: Loaded, hidden_points: float) -> bytes:
    contents = path.read_bytes()
    if path.suffix != ".py" or not any(case.hidden for case in loaded.exercise.cases):
        return contents
    try:
        return without_hidden_cases(contents.decode("utf-8"), hidden_points).encode("utf-8")
    except ComputedHidden as error:
        where = path.relative_to(loaded.folder.parent).as_posix()
        raise HandoutError(f"{where}:{error.line} computes `hidden`; {INSTEAD}") from None


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _is_named(path: Path, folder: Path, texts: Mapping[Path, str], imported: set[str]) -> bool:
    if path.suffix == ".py":
        return path.relative_to(folder).with_suffix("").parts[0] in imported
    return path.suffix != ".cu" and any(path.name in text for text in texts.values())


def _compare(original: Exercise, copies: Catalogue, name: str) -> None:
    """Load a copy and compare its cases with the visible ones; raise HandoutError if it fails or they differ."""
    try:
        copy = copies.load(name).exercise
        assert isinstance(copy, Exercise)
    except BrokenExercise as broken:
        reason = broken.problems[0]
        raise HandoutError(
            f"{name}: without its hidden cases, the exercise does not load: {reason}; {INSTEAD}"
        ) from None
    if remaining := [case.name for case in copy.cases if case.hidden]:
        raise HandoutError(f"{name}: cannot remove the hidden cases {remaining}; {INSTEAD}")
    if list(map(_facts, copy.cases)) != [_facts(case) for case in original.cases if not case.hidden]:
        raise HandoutError(f"{name}: without its hidden cases, the exercise has other visible cases; {INSTEAD}")


def _facts(case: Case) -> tuple[object, ...]:
    return case.name, case.points, case.patterns, case.variant.name


def _traces(exercise: Exercise, name: str, copy: Path) -> Iterator[str]:
    """Yield a line per place that has the size of a hidden case.

    Raises HandoutError if a text names a hidden case, or a pattern or variant that only hidden cases have.
    """
    hidden = [case for case in exercise.cases if case.hidden]
    if not hidden:
        return
    visible = [case for case in exercise.cases if not case.hidden]
    secrets = {case.name for case in hidden} | (_words(hidden) - _words(visible))
    sizes = _sizes(hidden) - _sizes(visible)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        shown = path.relative_to(copy).as_posix()
        if "/" in shown and not shown.startswith(f"exercises/{name}/"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if found := _first(secrets, line):
                raise HandoutError(f"{shown}:{number} has {found!r}, a name of a hidden case: remove it there")
            if found := _first(sizes, line):
                yield f"{shown}:{number} has {found}, the size of a hidden case"


def _words(cases: list[Case]) -> set[str]:
    patterns = {pattern for case in cases for pattern in case.patterns} - set(ALL_PATTERNS)
    return patterns | {case.variant.name for case in cases}


def _sizes(cases: list[Case]) -> set[str]:
    sizes = [case.size for case in cases if not callable(case.size)]
    return {str(extent) for size in sizes for extent in extents_of(size) if extent > 99}


def _first(words: set[str], line: str) -> str:
    return next((word for word in sorted(words) if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line)), "")
