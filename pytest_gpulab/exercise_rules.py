"""Rules for an exercise's data: every violation as a sentence that names the field, the value and the fix.

`Exercise` and `Plan` apply them when they are made, so that a wrong exercise never meets a submission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:  # they import this module
    from .exercise import Bound, Buffer, Exercise, Launch, Plan, Variant
    from .program_exercise import ProgramExercise

AnyExercise: TypeAlias = "Exercise | ProgramExercise"

NEVER_ALONE = ("cases", "safe", "uses", "speed", "tunables", "headers")
SAFE_KINDS = ("memory", "barrier", "race", "uninitialised")
ROLES = ("input", "output", "scratch")
FUNCTIONS = ("plan", "inputs", "reference")
OPTIONAL_FUNCTIONS = ("min_bytes", "reference_at", "mistakes")
_SCALARS: Mapping[str, tuple[type | tuple[type, ...], str]] = {  # by a field's annotation
    "str": (str, "a text"),
    "bool": ((bool, np.bool_), "True or False"),
    "float": ((int, float, np.number), "a number"),
    "float | None": ((int, float, np.number, type(None)), "a number"),
    "Mapping[str, str]": (Mapping, "a mapping of texts to texts"),
    "Mapping[str, Any]": (Mapping, "a mapping"),
}
NAIVE = "naive.cu"  # the baseline that every exercise of kernels has
MAX_BLOCK_THREADS, MAX_GRID_Y_Z = 1024, 65535
_SIGNS_OF_IDS = ("[", "]", "::")
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?", re.ASCII)
TOTAL_POINTS, LEAST_CORRECTNESS = 100, 50


def exercise_problems(exercise: Exercise, entry_types: Mapping[str, type]) -> list[str]:
    """Return the violations of an exercise's data, with the types of entries by tuple; its functions are not called."""
    stages = (_structure(exercise), _entries(exercise, entry_types), _values(exercise))  # each relies on those before
    return next((found for found in map(list, stages) if found), [])


def entry_problems(exercise: ProgramExercise, entry_types: Mapping[str, type]) -> Iterator[str]:
    """Yield entries of the wrong type in the tuples of an exercise for programs; see `exercise_problems`."""
    wrong = [*_not_sequences(exercise, entry_types, "ProgramExercise"), *_headline(exercise)]
    yield from wrong
    for name, entry_type in {} if wrong else entry_types.items():
        yield from _not_of_type(getattr(exercise, name), entry_type, f"ProgramExercise: `{name}`")
    for check in () if wrong else (*exercise.cases, *exercise.safe, *exercise.uses):
        yield from field_problems(check, _called(check), ("points",)) if is_dataclass(check) else ()
    yield from () if wrong else _unfit_names((*exercise.cases, *exercise.uses))
    yield from () if wrong else _wrong_points(exercise)


def field_problems(described: Any, where: str, besides: Iterable[str] = ()) -> Iterator[str]:
    """Yield the fields of a dataclass that must be texts, truth values, numbers or mappings, and are not.

    `where` begins the sentences; fields in `besides` have rules of their own.
    """
    for entry in fields(described):
        wanted, words = _SCALARS.get(str(entry.type), (object, ""))
        value = getattr(described, entry.name)
        is_no_number = "float" in str(entry.type) and (isinstance(value, bool) or value != value)
        texts = value.items() if entry.type == "Mapping[str, str]" and isinstance(value, Mapping) else ()
        has_others = not all(isinstance(text, str) for item in texts for text in item)
        if entry.name not in besides and (not isinstance(value, wanted) or is_no_number or has_others):
            yield f"{where}: `{entry.name}` must be {words}, but is {value!r}"


def plan_problems(plan: Plan, buffer_type: type, launch_type: type) -> list[str]:
    """Return the violations of a plan's buffers and launches."""
    groups = (("buffers", buffer_type), ("launches", launch_type))
    found = [problem for name, _ in groups for problem in _not_sequences(plan, (name,), "Plan")]
    found = found or [p for name, kind in groups for p in _not_of_type(getattr(plan, name), kind, f"Plan: `{name}`")]
    found = found or list(field_problems(plan, "Plan"))
    found = found or [problem for buffer in plan.buffers for problem in _buffer(buffer)]
    names = [buffer.name for buffer in plan.buffers] if not found else []
    if len(set(names)) != len(names):
        found = [f"two buffers of the plan share a name: {sorted(names)}"]
    return found or [problem for launch in plan.launches for problem in _launch(launch, set(names))]


def _launch(launch: Launch, buffer_names: set[str]) -> Iterator[str]:
    where = f"launch of {launch.kernel!r}"
    yield from field_problems(launch, where)
    for name in ("grid", "block", "args"):
        if not isinstance(value := getattr(launch, name), tuple):
            fix = "write (...)" if isinstance(value, list) else f"a tuple of one needs a comma: ({value!r},)"
            yield f"{where}: `{name}` must be a tuple, but is {value!r}; {fix}"
            return
    for name, extents in (("grid", launch.grid), ("block", launch.block)):
        if not 1 <= len(extents) <= 3 or not all(map(_is_count, extents)):
            yield f"{where}: the {name} {extents} must have 1 to 3 integers from 1"
            return
    if max(launch.grid[1:], default=1) > MAX_GRID_Y_Z:
        yield f"{where}: grid {launch.grid} exceeds {MAX_GRID_Y_Z} in y or z"
    if launch.shared_bytes != 0 and not _is_count(launch.shared_bytes):
        yield f"{where}: `shared_bytes` must be an integer from 0, but is {launch.shared_bytes!r}"
    yield from _arguments(launch, where, buffer_names)


def _arguments(launch: Launch, where: str, buffer_names: set[str]) -> Iterator[str]:
    for argument in launch.args:
        if isinstance(argument, str):
            if argument not in buffer_names:
                yield f"{where}: no buffer is called {argument!r}"
        elif not isinstance(argument, np.generic):
            yield f"{where}: {argument!r} is neither a buffer's name nor a NumPy scalar with a dtype"


def _buffer(buffer: Buffer) -> Iterator[str]:
    """Yield the violations of a plan's buffer."""
    yield from field_problems(buffer, f"buffer {buffer.name!r}")
    if buffer.role not in ROLES:
        yield f"buffer {buffer.name!r} has the role {buffer.role!r}; roles: {', '.join(ROLES)}"
    try:
        np.dtype(buffer.dtype)
    except TypeError:
        yield f"buffer {buffer.name!r} has the dtype {buffer.dtype!r}, which NumPy does not know"
    if not isinstance(buffer.shape, tuple) or not all(_is_count(extent) for extent in buffer.shape):
        yield f"buffer {buffer.name!r} has the shape {buffer.shape!r}; write a tuple of integers from 1, such as (n,)"


def _not_sequences(owner: Any, names: Iterable[str], what: str) -> Iterator[str]:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, str) or not isinstance(value, Sequence):
            kind, is_many = type(value).__name__, isinstance(value, Iterable) and not isinstance(value, str)
            fix = "write tuple(...)" if is_many else f"a tuple of one needs a comma: ({kind}(...),)"
            yield f"{what}: `{name}` must be a tuple, but is a {kind}; {fix}"


def _structure(exercise: Exercise) -> Iterator[str]:
    """Yield fields of the wrong type: the next stages iterate over them."""
    yield from _not_sequences(exercise, NEVER_ALONE, "Exercise")
    yield from _headline(exercise)
    for name in (*FUNCTIONS, *OPTIONAL_FUNCTIONS):
        value = getattr(exercise, name)
        if not callable(value) and not (value is None and name in OPTIONAL_FUNCTIONS):
            yield f"Exercise: `{name}` must be a function, but is {value!r}"


def _headline(exercise: AnyExercise) -> Iterator[str]:
    """Yield fields of the exercise itself that are no text, truth value or number, and a title of several lines."""
    kind = type(exercise).__name__
    yield from field_problems(exercise, kind, ("title", "compile_points", "hidden_points"))
    if not _is_line(exercise.title):
        yield f"{kind}: `title` must be a text of one line, but is {exercise.title!r}"
    headers = exercise.headers if isinstance(exercise.headers, Sequence) else ()
    for name in (name for name in headers if isinstance(name, str) and not isinstance(headers, str) and "/" in name):
        yield f"{kind}: `headers` has {name!r}; write the plain name of a file in the exercise's folder"


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip()) and text.isprintable()


def _called(check: Any) -> str:
    """Return the beginning of a sentence about a check: its class with its name, kind or threshold."""
    label = next(name for name in ("kind", "threshold", "name") if name in {entry.name for entry in fields(check)})
    return f"{type(check).__name__}({getattr(check, label)!r})"


def _entries(exercise: Exercise, entry_types: Mapping[str, type]) -> Iterator[str]:
    """Yield entries of the wrong type: the next stage reads their fields."""
    for name in NEVER_ALONE:
        yield from _not_of_type(getattr(exercise, name), entry_types[name], f"Exercise: `{name}`")
    for case in exercise.cases:
        if isinstance(case, entry_types["cases"]):
            yield from _not_sequences(case, ("patterns",), f"case {case.name!r}")
    for check in exercise.uses:
        if isinstance(check, entry_types["uses"]):
            where = f"UsesCheck({check.name!r})"
            alone = list(_not_sequences(check, ("bounds",), where))
            yield from alone or _not_of_type(check.bounds, entry_types["bounds"], f"{where}: `bounds`")
    yield from _names_and_variants(exercise, entry_types)
    yield from dict.fromkeys(_wrong_fields(exercise, entry_types))  # many checks may share a variant
    yield from _wrong_points(exercise)


def _wrong_fields(exercise: Exercise, entry_types: Mapping[str, type]) -> Iterator[str]:
    """Yield fields of checks, variants, bounds and tunables of the wrong type."""
    besides = ("name", "points", "threshold", "simulated_threshold")  # these have rules of their own
    for group in ("cases", "safe", "uses", "speed", "tunables"):
        for entry in (entry for entry in getattr(exercise, group) if isinstance(entry, entry_types[group])):
            yield from field_problems(entry, _called(entry), besides)
            if isinstance(variant := getattr(entry, "variant", None), entry_types["variant"]):
                yield from field_problems(variant, _called(variant))
                for macro in defines if isinstance(defines := variant.defines, Mapping) else ():  # type: ignore[attr-defined]  # the type is known to the caller
                    if not _MACRO.fullmatch(str(macro)):
                        where = _called(variant)
                        yield f"{where}: `defines` has {macro!r}, which is no macro: write NAME, or NAME(a, b)"
    for check in (check for check in exercise.uses if isinstance(check, entry_types["uses"])):
        bounds = check.bounds if isinstance(check.bounds, Sequence) else ()
        if all(isinstance(bound, entry_types["bounds"]) for bound in bounds):
            for bound in check.all_bounds if bounds else ():
                yield from _bound(bound, f"{_called(check)}: Bound({bound.what!r})")


def _bound(bound: Bound, where: str) -> Iterator[str]:
    yield from field_problems(bound, where)
    if not callable(bound.measure):
        yield f"{where}: `measure` must be a function of a Usage, but is {bound.measure!r}"


def _wrong_points(exercise: AnyExercise) -> Iterator[str]:
    for what, points in _all_points(exercise):
        if isinstance(points, bool) or not isinstance(points, int | float | np.number) or not points >= 0:
            yield f"{what} has {points!r} points; write a number from 0"


def _names_and_variants(exercise: Exercise, entry_types: Mapping[str, type]) -> Iterator[str]:
    """Yield names that no id of a check can have, variants of another type, and thresholds that are no numbers."""
    named: list[Any] = [*exercise.cases, *exercise.uses]
    for check in (*named, *exercise.speed):
        if hasattr(check, "variant") and not isinstance(check.variant, entry_types["variant"]):
            yield f"{type(check).__name__}: `variant` is {check.variant!r}, which is no Variant"
    yield from _unfit_names(named)
    for tier in exercise.speed:
        for number in (getattr(tier, "threshold", 1), getattr(tier, "simulated_threshold", None)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int | float | np.number)):
                yield f"SpeedTier({number!r}): the threshold must be a number"


def _unfit_names(checks: Iterable[Any]) -> Iterator[str]:
    """Yield names that no pytest id can contain: brackets enclose a check's name, and `::` separates an id's parts."""
    for check in checks:
        name = getattr(check, "name", "other")  # entries of another type have a message of their own
        if not _is_line(name):
            yield f"{type(check).__name__}({name!r}): the name must be a text of one line"
        elif any(sign in name for sign in _SIGNS_OF_IDS):
            yield f"{type(check).__name__}({name!r}): pytest's ids need a name without `[`, `]` and `::`"
        elif name != name.strip():
            yield f"{type(check).__name__}({name!r}): the name must not begin or end with a blank"


def _not_of_type(values: Iterable[Any], wanted: type, what: str) -> Iterator[str]:
    for value in values:
        if not isinstance(value, wanted):
            yield f"{what} holds {value!r}, which is no {wanted.__name__}"


def _all_points(exercise: AnyExercise) -> Iterator[tuple[str, Any]]:
    yield "compile_points", exercise.compile_points
    yield "hidden_points", exercise.hidden_points
    for check in (*exercise.cases, *exercise.safe, *exercise.uses, *exercise.speed):
        if is_dataclass(check) and hasattr(check, "points"):  # entries of another type have a message of their own
            yield _called(check), check.points


def _values(exercise: Exercise) -> Iterator[str]:
    for rule in (_cases, _safe, _uses, _speed, _tunables):
        yield from rule(exercise)
    yield from _repeated(exercise)
    yield from _unlike_variants(exercise)
    yield from point_problems(exercise)


def _cases(exercise: Exercise) -> Iterator[str]:
    if not exercise.cases:
        yield "an exercise needs at least one case"
    for case in exercise.cases:
        if not case.patterns:
            yield f"case {case.name!r} has no input pattern"
        elif not all(isinstance(name, str) for name in case.patterns) or len(set(case.patterns)) < len(case.patterns):
            yield f"case {case.name!r}: `patterns` must be different texts, but is {case.patterns!r}"
        if not callable(case.size):
            yield from _size(f"case {case.name!r}", "size", case.size)


def _safe(exercise: Exercise) -> Iterator[str]:
    for check in exercise.safe:
        if check.kind not in SAFE_KINDS:
            yield f"SafeCheck({check.kind!r}): there is no such kind; kinds: {', '.join(SAFE_KINDS)}"


def _uses(exercise: Exercise) -> Iterator[str]:
    for check in exercise.uses:
        if not check.bounds:
            yield f"UsesCheck({check.name!r}) has no bound, so that every kernel passes it"
        yield from _size(f"UsesCheck({check.name!r})", "size", check.size)
        if check.extra and check.required:
            yield f"UsesCheck({check.name!r}) is required and extra; write required=False"


def _speed(exercise: Exercise) -> Iterator[str]:
    for tier in exercise.speed:
        where = f"SpeedTier({tier.threshold!r})"
        for threshold in (tier.threshold, tier.simulated_threshold):
            if threshold is not None and not threshold > 0:
                yield f"{where}: the threshold {threshold!r} is not above 0"
        yield from _size(where, "size", tier.size)
        if tier.extra and tier.required:
            yield f"{where} is required and extra; write required=False"
        if tier.simulated_size is not None:
            yield from _size(where, "simulated_size", tier.simulated_size)
        if tier.needs and all((uses.name, uses.variant) != (tier.needs, tier.variant) for uses in exercise.uses):
            yield f"{where}: `needs` is {tier.needs!r}, but no UsesCheck of its variant has this name"


def _tunables(exercise: Exercise) -> Iterator[str]:
    for tunable in exercise.tunables:
        where = f"Tunable({tunable.name!r})"
        if not str(tunable.name).isidentifier():
            yield f"{where}: the name is no C++ identifier"
        allowed = tunable.allowed if isinstance(tunable.allowed, Sequence) else ()
        are_numbers = isinstance(allowed, range) or all(isinstance(value, int | np.integer) for value in allowed)
        if not allowed or not are_numbers:
            yield f"{where}: `allowed` must be a sequence of integers, but is {tunable.allowed!r}"
        elif tunable.default is not None and tunable.default not in tunable.allowed:
            yield f"{where}: the default {tunable.default!r} is not among the allowed values"


def _repeated(exercise: Exercise) -> Iterator[str]:
    groups: dict[str, list[str]] = {
        "case": [case.name for case in exercise.cases],
        "safe check": [check.kind for check in exercise.safe],
        "uses check": [check.name for check in exercise.uses],
        "speed tier": [tier.name for tier in exercise.speed],
        "tunable": [tunable.name for tunable in exercise.tunables],
    }
    yield from repeated_names(groups)


def _unlike_variants(exercise: Exercise) -> Iterator[str]:
    """Yield names that variants with different macros share: grades are by name."""
    defines: dict[str, Mapping[str, str]] = {}
    checks: list[Any] = [*exercise.cases, *exercise.uses, *exercise.speed]
    variants: list[Variant] = [check.variant for check in checks]
    unlike = {v.name for v in variants if defines.setdefault(v.name, v.defines) != v.defines}
    for name in sorted(unlike):
        yield f"more than one Variant is called {name!r}, with different `defines`; give each a name of its own"


def repeated_names(groups: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a sentence for each kind of check with a name that occurs twice."""
    for what, names in groups.items():
        if repeated := {name for name in names if names.count(name) > 1}:
            yield f"more than one {what} is called {sorted(repeated)}"


def point_problems(exercise: AnyExercise) -> Iterator[str]:
    """Yield a sentence for each rule on points that the sums break."""
    kinds = points_by_kind(exercise)
    extra = extra_points(exercise)
    total, correctness = sum(kinds.values()) - extra, sum(kinds[kind] for kind in ("compile", "correct", "safe"))
    if abs(total - TOTAL_POINTS) > 1e-9:
        parts = ", ".join(f"{kind} {points:g}" for kind, points in kinds.items())
        besides = f" and {extra:g} extra" if extra else ""
        yield f"the checks' points add up to {total:g}{besides}, not {TOTAL_POINTS}{besides}: {parts}"
    if correctness < LEAST_CORRECTNESS:
        yield f"correctness earns {correctness:g} of {TOTAL_POINTS} points; it must be at least half"


def extra_points(exercise: AnyExercise) -> float:
    """Return the points that come on top of the 100."""
    groups = (exercise.uses, exercise.speed)
    return float(sum(check.points for checks in groups for check in checks if check.extra))


def points_by_kind(exercise: AnyExercise) -> dict[str, float]:
    """Return the points of each kind of check."""
    return {
        "compile": float(exercise.compile_points),
        "correct": float(sum(case.points for case in exercise.cases) + exercise.hidden_points),
        "safe": float(sum(check.points for check in exercise.safe)),
        "uses": float(sum(check.points for check in exercise.uses)),
        "speedup": float(sum(tier.points for tier in exercise.speed)),
    }


def _size(where: str, name: str, size: Any) -> Iterator[str]:
    if found := size_problem(size):
        yield f"{where}: the {name} {found}"


def size_problem(size: Any) -> str:
    """Return the violation of a size, beginning with it; empty if there is none."""
    extents = size if isinstance(size, tuple) else (size,)
    is_right = extents and all(_is_count(extent) for extent in extents)
    return "" if is_right else f"{size!r} is neither an integer from 1 nor a tuple of such integers"


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
