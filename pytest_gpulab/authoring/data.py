"""Inputs, references and tolerances: repeatable, finite, and strict enough to tell wrong results from right ones."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Case, Exercise, Expected, Plan
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.diagnosis.compare import mismatches
from pytest_gpulab.grading.plans.prepare import (
    InstructorsMistake,
    Prepared,
    expected_at,
    instructors_code,
    make_inputs,
    make_plan,
    prepare,
    rng_for,
)

from .defects import Defect, of_finding
from .plans import tunables_of

Array = npt.NDArray[Any]
Wrong = Callable[[Array], Array]

WRONG_RESULTS: Mapping[str, Wrong] = {
    "an output of zeros": np.zeros_like,
    "half-precision results": lambda values: values.astype(np.float16).astype(values.dtype),
    "results of one part in a thousand too much": lambda values: values * 1.001,
}
MISSING = "a result in which one input element is missing"


def data_problems(loaded: LoadedExercise, device: Device, seed: int) -> Iterator[Defect]:
    """Make the data of every case and pattern twice, and compare them; then try wrong results."""
    where, accepted = str(loaded.folder / "exercise.py"), dict[str, bool]()
    by_variant, varies = tunables_of(loaded, device), False
    for case in loaded.exercise.cases:
        tunables = by_variant[case.variant.name]
        for pattern in case.patterns:
            try:
                prepared = _prepared(loaded, case, tunables, pattern, seed)
                yield from _unrepeatable(
                    loaded, case, pattern, prepared, _prepared(loaded, case, tunables, pattern, seed)
                )
                varies = varies or _differs(loaded, case, pattern, prepared.inputs, tunables, seed + 1)
                yield from _values(where, case, pattern, prepared)
                if unlike := list(_unlike_places(where, loaded.exercise, case, pattern, prepared)):
                    yield from unlike
                    return
                prepared.known()
                for wrong, passes in _accepted(loaded.exercise, case, tunables, prepared):
                    accepted[wrong] = accepted.get(wrong, True) and passes
            except InstructorsMistake as mistake:
                problem = of_finding(mistake.finding, where)
                yield replace(problem, what=f"{problem.what} (in case {case.name!r}, pattern {pattern!r})")
                return  # the same mistake in other cases would only repeat it
    if not varies:
        what = "`inputs` gives the same values for every seed, so that a kernel can store the results"
        yield Defect(what, where, "Draw the values from `rng`.", level="warning")
    yield from _ignored_patterns(loaded, by_variant, seed)
    for wrong, always in accepted.items():
        if always:
            instead = "Lower the tolerance: pytest_gpulab.numerics has bounds for sums, dot products and products."
            yield Defect(f"the tolerance accepts {wrong} in every case", where, instead)


def _prepared(loaded: LoadedExercise, case: Case, tunables: Mapping[str, int], pattern: str, seed: int) -> Prepared:
    with instructors_code("size"):
        problem = case.problem(tunables)
    plan = make_plan(loaded.exercise, problem)
    return prepare(loaded.exercise, problem, plan, pattern, rng_for(seed, loaded.name, case.name, pattern))


def _ignored_patterns(
    loaded: LoadedExercise, by_variant: Mapping[str, Mapping[str, int]], seed: int
) -> Iterator[Defect]:
    """Yield the patterns that `inputs` treats as an unknown name in all cases; "random" may be all others."""
    told_apart = {"random": True}
    for case in loaded.exercise.cases:
        for pattern in (pattern for pattern in case.patterns if not told_apart.get(pattern)):
            tunables = by_variant[case.variant.name]
            inputs = _inputs(loaded, case, pattern, tunables, seed)
            try:
                told_apart[pattern] = _differs(loaded, case, pattern, inputs, tunables, seed, called=f"{pattern}?")
            except InstructorsMistake:  # `inputs` refuses unknown names
                told_apart[pattern] = True
    for pattern in (pattern for pattern, is_known in told_apart.items() if not is_known):
        instead = "Correct the name, or raise ValueError(pattern) for unknown names."
        what = f"`inputs` treats the pattern {pattern!r} as an unknown name"
        yield Defect(what, str(loaded.folder / "exercise.py"), instead, level="warning")


def _differs(
    loaded: LoadedExercise,
    case: Case,
    pattern: str,
    inputs: Mapping[str, Array],
    tunables: Mapping[str, int],
    seed: int,
    called: str = "",
) -> bool:
    """Return True if another seed, or another name of the pattern, gives other inputs; or if there is no input."""
    others = _inputs(loaded, case, pattern, tunables, seed, called)
    return not others or any(values.tobytes() != others[name].tobytes() for name, values in inputs.items())


def _inputs(
    loaded: LoadedExercise, case: Case, pattern: str, tunables: Mapping[str, int], seed: int, called: str = ""
) -> Mapping[str, Array]:
    """Return a case's inputs for a pattern, which `inputs` gets under another name if `called` is given."""
    problem = case.problem(tunables)
    plan, rng = make_plan(loaded.exercise, problem), rng_for(seed, loaded.name, case.name, pattern)
    return make_inputs(loaded.exercise, problem, plan, called or pattern, rng)


def _unrepeatable(
    loaded: LoadedExercise, case: Case, pattern: str, first: Prepared, second: Prepared
) -> Iterator[Defect]:
    place = f"(case {case.name!r}, pattern {pattern!r})"
    where = str(loaded.folder / "exercise.py")
    instead = "Draw every random number from `rng`."
    for name, values in first.inputs.items():
        if not np.array_equal(values, second.inputs[name], equal_nan=values.dtype.kind == "f"):
            yield Defect(f"`inputs` gives other values of {name!r} for the same seed {place}", where, instead)
    for name, expected in first.expected.values.items():
        if not np.array_equal(expected, second.expected.values[name]):
            yield Defect(f"`reference` gives other values of {name!r} for the same inputs {place}", where, instead)


def _values(where: str, case: Case, pattern: str, prepared: Prepared) -> Iterator[Defect]:
    place = f"(case {case.name!r}, pattern {pattern!r})"
    for name, values in prepared.expected.values.items():
        dtype, found = np.dtype(prepared.plan.buffer(name).dtype), np.asarray(values)
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            yield Defect(f"`reference` gives infinite values of {name!r} {place}", where, "Choose other inputs.")
        if dtype.kind in "iu" and found.dtype.kind == "f":
            instead = f"Compute it in {dtype}, or in int64: float64 holds integers up to 2**53 only."
            yield Defect(f"`reference` gives {found.dtype} for the {dtype} output {name!r} {place}", where, instead)


def _unlike_places(where: str, exercise: Exercise, case: Case, pattern: str, prepared: Prepared) -> Iterator[Defect]:
    """Compare `reference_at` with `reference` at every second place."""
    if exercise.reference_at is None:
        return
    values = {name: np.asarray(found).reshape(-1) for name, found in prepared.expected.values.items()}
    places = {name: np.arange(0, found.size, 2) for name, found in values.items()}
    at = expected_at(exercise.reference_at, case.problem(prepared.tunables), prepared.inputs, places)
    for name, chosen in places.items():
        allowed = np.asarray(prepared.expected.tolerance.get(name, 0)).reshape(-1)
        if mismatches(values[name][chosen], np.asarray(at.values[name]), allowed[chosen % allowed.size]).any():
            what = f"`reference_at` gives other values of {name!r} than `reference`"
            yield Defect(f"{what} (case {case.name!r}, pattern {pattern!r})", where)


def _accepted(
    exercise: Exercise, case: Case, tunables: Mapping[str, int], prepared: Prepared
) -> Iterator[tuple[str, bool]]:
    """Yield wrong results, and whether the tolerances accept them."""
    is_float = any(np.dtype(prepared.plan.buffer(name).dtype).kind == "f" for name in prepared.expected.values)
    with np.errstate(over="ignore", invalid="ignore"):
        for wrong, change in WRONG_RESULTS.items():
            if is_float or wrong == "an output of zeros":
                changed = {name: change(np.asarray(v)) for name, v in prepared.expected.values.items()}
                yield wrong, _passes(prepared.plan, prepared.expected, changed)
    lacking = {name: _without_one(values) for name, values in prepared.inputs.items()}
    with instructors_code("reference"):
        expected = exercise.reference(case.problem(tunables), lacking)
    yield MISSING, _passes(prepared.plan, prepared.expected, expected.values)


def _without_one(values: Array) -> Array:
    """Return an input with its last non-zero element set to zero."""
    changed: Array = values.copy()
    places = np.flatnonzero(values)
    if places.size:
        changed.reshape(-1)[places[-1]] = 0
    changed.setflags(write=False)
    return changed


def _passes(plan: Plan, expected: Expected, results: Mapping[str, Array]) -> bool:
    """Return True if results of the output's dtype keep the tolerance everywhere."""
    given = {name: np.asarray(values).astype(plan.buffer(name).dtype) for name, values in results.items()}
    return not any(
        mismatches(given[name], np.asarray(values), expected.tolerance.get(name, 0)).any()
        for name, values in expected.values.items()
    )
