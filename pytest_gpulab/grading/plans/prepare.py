"""Checked data from an exercise's functions: plan, inputs and expected outputs.

The data of a case depends only on the seed and the case. So it is the same in every process and in every order of
checks, and for a submission and its baseline.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pytest_gpulab.exercise import Array, Case, Exercise, ExerciseError, Expected, KnownMistake, Plan, Problem
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import EXERCISES_MISTAKE, Finding
from pytest_gpulab.grading.time_limits import OWN_CODE

PACKAGE = Path(__file__).parents[2]
WRONG_TOO = "A result of your kernel is wrong, too. Please tell your instructor."  # only then `mistakes` is called
LOOK_ALIKE_SHARE = 16  # a look-alike differs in one of this number of elements


class InstructorsMistake(Exception):
    """An error in the exercise's own code: it raised, or contradicts itself. The check is not gradable."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


FRACTION = "Usual cause: an intermediate `int`, which drops the fraction. What type has each intermediate value?"
SIGN = "Usual cause: an absolute value where the sign counts. Which operation or type drops it?"
_LOSSES: tuple[tuple[str, np.ufunc, str], ...] = (("fractions", np.trunc, FRACTION), ("signs", np.abs, SIGN))


@dataclass(frozen=True)
class Prepared:
    """The input of a replay and of its verdict."""

    plan: Plan
    inputs: Mapping[str, Array]
    expected: Expected
    tunables: Mapping[str, int] = field(default_factory=dict)
    known: Callable[[], Sequence[KnownMistake]] = tuple


def prepare(exercise: Exercise, problem: Problem, plan: Plan, pattern: str, rng: np.random.Generator) -> Prepared:
    """Make the inputs of a plan and the expected outputs, or raise InstructorsMistake."""
    inputs = make_inputs(exercise, problem, plan, pattern, rng)
    expected = expected_of(exercise, problem, plan, inputs)
    return Prepared(plan, inputs, expected, problem.tunables, partial(known_mistakes, exercise, problem, plan, inputs))


def known_mistakes(
    exercise: Exercise, problem: Problem, plan: Plan, inputs: Mapping[str, Array]
) -> Sequence[KnownMistake]:
    """Return the outputs of the exercise's known mistakes and of inputs with a loss, or raise InstructorsMistake."""
    lost = tuple(_with_losses(exercise, problem, plan, inputs))
    if exercise.mistakes is None:
        return lost
    with instructors_code("mistakes"):
        made = exercise.mistakes(problem, inputs)
        if not isinstance(made, Sequence) or not all(isinstance(known, KnownMistake) for known in made):
            raise ExerciseError(_at(exercise.mistakes, "it must return KnownMistakes in a list or tuple"))
        for name, values in ((name, values) for known in made for name, values in known.values.items()):
            if found := _unlike_buffer(plan, name, np.shape(values)):
                raise ExerciseError(_at(exercise.mistakes, found))
    return (*made, *lost)


def _with_losses(
    exercise: Exercise, problem: Problem, plan: Plan, inputs: Mapping[str, Array]
) -> Iterator[KnownMistake]:
    """Yield the outputs for inputs that have lost their fractions, as in a variable of type `int`, or their signs."""
    for lost, change, cause in _LOSSES:
        changed = {name: change(values) for name, values in inputs.items() if values.dtype.kind in "if"}
        names = [name for name, values in changed.items() if (values != inputs[name]).any()]
        for which in dict.fromkeys((*zip(names), tuple(names))) if names else ():
            what = f"the result for {' and '.join(f'`{name}`' for name in which)} without the {lost}"
            with suppress(InstructorsMistake), np.errstate(all="ignore"):
                other = expected_of(exercise, problem, plan, {**inputs, **{name: changed[name] for name in which}})
                yield KnownMistake(what, other.values, cause)


def _unlike_buffer(plan: Plan, name: str, shape: tuple[int, ...]) -> str:
    outputs = {buffer.name: buffer.shape for buffer in plan.buffers if buffer.role == "output"}
    if name not in outputs:
        return f"a known mistake has {name!r}, but the output buffers are {sorted(outputs)}"
    if shape != outputs[name]:
        return f"a known mistake's {name!r} has shape {shape}, but its buffer has {outputs[name]}"
    return ""


def expected_of(exercise: Exercise, problem: Problem, plan: Plan, inputs: Mapping[str, Array]) -> Expected:
    """Compute the expected outputs, or raise InstructorsMistake."""
    with instructors_code("reference"):
        expected = exercise.reference(problem, inputs)
        check_expected(exercise.reference, {b.name: b.shape for b in plan.buffers if b.role == "output"}, expected)
    return expected


def expected_at(
    function: Callable[[Problem, Mapping[str, Array], Mapping[str, Array]], Expected],
    problem: Problem,
    inputs: Mapping[str, Array],
    places: Mapping[str, Array],
) -> Expected:
    """Compute the expected outputs with the exercise's `reference_at`, or raise InstructorsMistake.

    `places` are indices into the flattened output buffers, ascending, by name.
    """
    with instructors_code("reference_at"):
        expected = function(problem, inputs, places)
        check_expected(function, {name: chosen.shape for name, chosen in places.items()}, expected)
    return expected


def problem_of(case: Case, tunables: Mapping[str, int]) -> Problem:
    """Return the problem of a case, or raise InstructorsMistake."""
    with instructors_code("size"):
        return case.problem(tunables)


def make_plan(exercise: Exercise, problem: Problem) -> Plan:
    """Build the plan of a problem, or raise InstructorsMistake."""
    with instructors_code("plan"):
        plan = exercise.plan(problem)
        if not isinstance(plan, Plan):
            raise ExerciseError(_at(exercise.plan, f"it must return a Plan, but returns {_kind(plan)}"))
        return plan


def make_inputs(
    exercise: Exercise, problem: Problem, plan: Plan, pattern: str, rng: np.random.Generator
) -> Mapping[str, Array]:
    """Return the contents of every input buffer of the plan, read-only, contiguous, of the buffer's dtype and shape.

    Raises InstructorsMistake if the exercise's own code is wrong.
    """
    with instructors_code("inputs"):
        made = exercise.inputs(problem, pattern, rng)
        if not isinstance(made, Mapping):
            what = f"it must return arrays by buffer, {{name: array}}, but returns {_kind(made)}"
            raise ExerciseError(_at(exercise.inputs, what))
        inputs = {}
        for buffer in plan.buffers:
            if buffer.role == "input":
                inputs[buffer.name] = _pristine(made, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if unknown := sorted(map(str, set(made) - set(inputs))):
            raise ExerciseError(_at(exercise.inputs, f"no input buffer is called {unknown[0]!r}"))
        return inputs


def look_alike(inputs: Mapping[str, Array], others: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return inputs with a few elements of other inputs, but never their first and last ones.

    A kernel that recognises inputs by their length and a few elements takes them for the same. Arrays of at most two
    elements are taken from the other inputs as a whole.
    """
    return {name: _altered(values, others[name], rng) for name, values in inputs.items()}


def _altered(values: Array, others: Array, rng: np.random.Generator) -> Array:
    if values.size <= 2:
        return others
    altered: Array = values.copy()
    inner = values.size - 2
    changed = 1 + rng.choice(inner, max(1, inner // LOOK_ALIKE_SHARE), replace=False)
    altered.reshape(-1)[changed] = others.reshape(-1)[changed]
    return altered


def _pristine(made: Mapping[str, Array], name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if name not in made:
        raise ExerciseError(f"`inputs` has no array for the input buffer {name!r}")
    values: Array = np.ascontiguousarray(made[name]).reshape(np.shape(made[name])).view()
    if values.dtype != dtype or values.shape != shape:
        raise ExerciseError(f"input {name!r} is {values.dtype} {values.shape}, but its buffer is {dtype} {shape}")
    # The reference and later replays must get the same contents.
    values.setflags(write=False)
    return values


def check_expected(
    function: Callable[..., Expected], shapes: Mapping[str, tuple[int, ...]], expected: Expected
) -> None:
    """Check that outputs of these shapes can be compared with the values and tolerances that a function returned.

    Raises ExerciseError if they cannot; it names the function, the error and the fix.
    """
    if not isinstance(expected, Expected):
        raise ExerciseError(_at(function, f"it must return Expected, but returns {_kind(expected)}"))
    problem = (
        _not_mappings(expected)
        or _wrong_values(shapes, expected.values)
        or _wrong_tolerance(shapes, expected.tolerance)
    )
    if problem:
        raise ExerciseError(_at(function, problem))


def _kind(value: object) -> str:
    return "nothing: `return` is missing" if value is None else f"a {type(value).__name__}"


def _not_mappings(expected: Expected) -> str:
    for name in ("values", "tolerance"):
        if not isinstance(value := getattr(expected, name), Mapping):
            kind = "None" if value is None else _kind(value)
            return f"`{name}` must be by output buffer, such as {{'out': ...}}, but is {kind}"
    return ""


def _wrong_values(shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> str:
    if set(shapes) != set(values):
        return f"`values` has {sorted(values)}, but the output buffers are {sorted(shapes)}"
    for name, shape in shapes.items():
        if unusable := _unusable(values[name]):
            return f"the values of {name!r} are {unusable}"
        kind = np.asarray(values[name]).dtype.kind
        if kind not in "biuf":
            return f"the values of {name!r} are not real numbers but {np.asarray(values[name]).dtype}"
        if np.shape(values[name]) != shape:
            return f"the values of {name!r} have shape {np.shape(values[name])}, not {shape}"
        if kind == "f" and np.isnan(np.min(values[name], initial=0)):
            return f"the values of {name!r} contain NaN, which equals no result: choose other inputs"
    return ""


def _unusable(values: object) -> str:
    """Return why values cannot be an array for comparisons, or an empty text."""
    masked = sys.modules.get("numpy.ma")  # imported by the exercises that use it: it takes 20 ms
    if masked is not None and isinstance(values, masked.MaskedArray):
        return "a masked array: write a plain one"
    try:
        np.asarray(values)
    except ValueError:
        return "lists of different lengths"
    return ""


def _wrong_tolerance(shapes: Mapping[str, tuple[int, ...]], tolerance: Mapping[str, float | Array]) -> str:
    for name, allowed in tolerance.items():
        if name not in shapes:
            return f"`tolerance` has {name!r}, but the output buffers are {sorted(shapes)}: write one of these names"
        if unusable := _unusable(allowed):
            return f"the tolerance of {name!r} is {unusable}"
        if np.asarray(allowed).dtype.kind not in "iuf":
            return f"the tolerance of {name!r} is not a number but {np.asarray(allowed).dtype}: write the allowed error"
        if np.shape(allowed) not in ((), shapes[name]):
            shape = np.shape(allowed)
            return f"the tolerance of {name!r} has shape {shape}: write one number, or an array of shape {shapes[name]}"
        low, high = np.min(allowed, initial=0), np.max(allowed, initial=0)
        if not (low >= 0 and high < np.inf):
            return f"the tolerance of {name!r} contains {low if not low >= 0 else high}: write finite numbers >= 0"
    return ""


def _at(function: Callable[..., object], problem: str) -> str:
    """Return a problem after the place of the instructor's function, without its folder; students read it, too."""
    code = getattr(function, "__code__", None)
    is_own = code is not None and not Path(code.co_filename).is_relative_to(PACKAGE)
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}: {problem}" if code and is_own else problem


def rng_for(seed: int, *key: str) -> np.random.Generator:
    """Return the generator of a seed and a key; different keys give independent generators."""
    digest = hashlib.sha256("\0".join((str(seed), *key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def header_texts(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of an exercise's headers by name, or raise InstructorsMistake if one is missing."""
    with instructors_code("headers"):
        for name in names:
            if not (folder / name).is_file():
                raise ExerciseError(f"there is no file {name!r} beside exercise.py")
        return {name: (folder / name).read_text(encoding="utf-8") for name in names}


@contextmanager
def instructors_code(what: str) -> Iterator[None]:
    """Convert any exception of the exercise's own code to an `InstructorsMistake` with its traceback."""
    try:
        with OWN_CODE.of(what):
            yield
    except MemoryError:  # not a mistake of the exercise
        raise
    except (Exception, SystemExit) as error:
        is_named = isinstance(error, KeyError | SystemExit) or not str(error)
        text = f"{type(error).__name__}: {error}" if is_named else "; ".join(str(error).splitlines())
        hint = WRONG_TOO if what == "mistakes" else None
        what = f"The exercise's own `{what}` is wrong: {text}"
        raise InstructorsMistake(finding(EXERCISES_MISTAKE, what, evidence=_traceback(error), hint=hint)) from error


def _traceback(error: BaseException) -> list[str]:
    """Return the lines of a traceback without the frames of this package, if there are others."""
    described = traceback.TracebackException.from_exception(error)
    own = [frame for frame in described.stack if not Path(frame.filename).is_relative_to(PACKAGE)]
    described.stack = traceback.StackSummary.from_list(own or described.stack)
    lines, notes = "".join(described.format()).splitlines(), getattr(error, "__notes__", [])
    return lines if lines[-len(notes) :] == notes else [*lines, *notes]  # Python 3.10 leaves them out
