"""The README's points table against the exercise's data."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from pytest_gpulab.exercise import Exercise, SpeedTier, UsesCheck
from pytest_gpulab.exercise_rules import AnyExercise, points_by_kind

from .defects import Defect

_HEADER = re.compile(r"^\|\s*check\s*\|\s*points\s*\|\s*$", re.I)
_NAMED = re.compile(r"`((?:safe|uses|speedup)\[[^]`]+\])`")
_KIND = re.compile(r"`(compile|correct|safe|uses|speedup)\b")
_SIZES = re.compile(r"\b(\d+) sizes?\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def readme_problems(exercise: AnyExercise, readme: Path) -> Iterator[Defect]:
    """Compare the table `check | points` with the points of each kind of check, and with the names of the checks.

    A row's kind is that of the first check in backticks. Its last cell has one number, or several with commas.
    """
    if not readme.is_file():
        yield Defect("there is no README for students", str(readme), level="warning")
        return
    try:
        lines = readme.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        yield Defect("the README is not in UTF-8", str(readme), "Save the file as UTF-8.")
        return
    start = next((number for number, line in enumerate(lines) if _HEADER.match(line)), None)
    if start is None:
        yield Defect("the README has no table `| check | points |`", str(readme), level="warning")
        return
    rows = list(takewhile(lambda line: line.startswith("|"), lines[start + 2 :]))
    yield from (Defect(what, f"{readme}:{start + 1}", level="warning") for what in _unlike_checks(exercise, rows))
    stated = dict.fromkeys(points_by_kind(exercise), 0.0)
    for line in rows:
        if (kind := _KIND.search(line)) is not None:
            stated[kind[1]] += sum(map(float, _NUMBER.findall(line.rstrip(" |").rpartition("|")[2])))
    for name, points in points_by_kind(exercise).items():
        if abs(points - stated[name]) > 1e-9:
            what = f"the points table gives {stated[name]:g} points to `{name}` checks; the exercise gives {points:g}"
            yield Defect(what, f"{readme}:{start + 1}")


def _unlike_checks(exercise: AnyExercise, rows: Sequence[str]) -> Iterator[str]:
    """Yield names of checks that the exercise does not have, and another number of sizes than it has cases."""
    names = {f"safe[{check.kind}]" for check in exercise.safe} | {f"uses[{check.name}]" for check in exercise.uses}
    names |= {f"speedup[{tier.name}]" for tier in exercise.speed}
    for unknown in (name for name in _NAMED.findall("\n".join(rows)) if name not in names and "..." not in name):
        yield f"the points table names {unknown}, which the exercise does not have"
    for check, row in ((check, row) for check in exercise.uses for row in rows if f"`uses[{check.name}]`" in row):
        yield from _other_bounds(check, row)
    of_cases = [row for row in rows if (kind := _KIND.search(row)) and kind[1] == "correct"]
    sizes = _SIZES.findall(of_cases[0]) if len(of_cases) == 1 else []  # several rows may share the cases out
    numbers = {len(exercise.cases), sum(not case.hidden for case in exercise.cases)}
    is_copy = exercise.hidden_points > 0  # `gpulab handout` left cases out
    if len(sizes) == 1 and int(sizes[0]) not in numbers and not is_copy:
        yield f"the points table has {sizes[0]} sizes, but the exercise has {len(exercise.cases)}"


def _other_bounds(check: Any, row: str) -> Iterator[str]:
    """Yield the limits of bounds in a row that the check does not have; its text is that of `points_table` then."""
    limits: dict[str, list[str]] = {}
    for bound in getattr(check, "bounds", ()):  # those of programs are other ones
        limits.setdefault(bound.what, []).append(f"{bound.at_least if bound.at_most is None else bound.at_most:g}")
    for what, numbers in limits.items():
        for stated in re.findall(re.escape(what) + r": ([\d.e+-]+) or", row):
            if stated not in numbers:
                named = f"uses[{check.name}] ({what})"
                yield f"the points table has {stated} for {named}, but the exercise has {numbers[0]}"


def points_table(exercise: Exercise) -> str:
    """Return the points table of an exercise, as `readme_problems` expects it."""
    hazards = ", ".join(f"`safe[{check.kind}]`" for check in exercise.safe)
    rows = [
        ("`compile`", exercise.compile_points),
        (f"`correct[...]`: {len(exercise.cases)} sizes", sum(case.points for case in exercise.cases)),
        (f"{hazards}: no such hazard in any of them", sum(check.points for check in exercise.safe)),
        *((f"`uses[{uses.name}]` ({_bounds(uses)}): {_kind(uses)}", uses.points) for uses in exercise.uses),
        *((f"`speedup[{tier.name}]` over `{tier.baseline}`: {_kind(tier)}", tier.points) for tier in exercise.speed),
    ]
    lines = [f"| {what} | {points:g} |" for what, points in rows if points]
    return "\n".join(("| check | points |", "|---|---|", *lines))


def _bounds(uses: UsesCheck) -> str:
    upper = {bound.what: f"{bound.at_most:g} or less" for bound in uses.bounds if bound.at_most is not None}
    lower = {bound.what: f"{bound.at_least:g} or more" for bound in uses.bounds if bound.at_least is not None}
    return ", ".join(f"{what}: {limit}" for what, limit in {**lower, **upper}.items())


def _kind(check: UsesCheck | SpeedTier) -> str:
    return "required" if check.required else "extra" if check.extra else "bonus"
