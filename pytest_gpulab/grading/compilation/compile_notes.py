"""Notes on a file that compiles: unused host code, tunables that no kernel reads, constants of another type."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from pytest_gpulab.devices.source.host_code import DeviceText
from pytest_gpulab.devices.source.tokens import Token, tokens, words_of
from pytest_gpulab.exercise import Case, Exercise, Launch, Plan, Variant
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_plan, problem_of

from .parameter_types import element_name, is_element_of

_CONSTANT = r"\b__constant__\s+(?:const\s+)?((?:(?:un)?signed\s+)?\w+)\s+{}\s*\["


def host_code_note(code: DeviceText, filename: str) -> list[Finding]:
    """Return a note on the lines of host code, if there are any."""
    if not code.host_lines:
        return []
    parts = [f"line {first}" if first == last else f"lines {first} to {last}" for first, last in code.host_lines]
    what = f"Host code ({', '.join(parts)}) is not used: the grader launches your kernels."
    return [finding("host-code", what, f"{filename}:{code.host_lines[0][0]}", hint="")]


def chosen_kernels(choices: Iterable[Mapping[str, str]]) -> list[Finding]:
    """Return a note on each kernel that is graded under another name.

    `choices` map, per variant, the exercise's kernels to those of the file.
    """
    kernels: dict[str, dict[str, None]] = {}
    for chosen in choices:
        for required, kernel in chosen.items():
            kernels.setdefault(required, {})[kernel] = None
    found = []
    for required, others in kernels.items():
        listed = " and ".join(f"`{kernel}`" for kernel in others)
        what = f"{listed} {'is' if len(others) == 1 else 'are'} graded as `{required}`."
        found.append(finding("kernel-chosen", what, hint=""))
    return found


def own_type(misfit: Finding, variants: Sequence[str]) -> list[Finding]:
    """Return a note on a kernel that fits some variants only, with the reason why it does not fit another one."""
    what = f"The kernel fits some variants only: {', '.join(variants)}. {misfit.what}"
    return [finding("own-type", what, evidence=misfit.evidence, hint=misfit.hint)]


def unread_macros(code: DeviceText, headers: Mapping[str, str], variants: Iterable[Variant]) -> list[Finding]:
    """Return a note on a file that uses none of the macros by which the variants differ, such as GPULAB_OP."""
    values: dict[str, set[str]] = {}
    for variant in variants:
        for macro, value in variant.defines.items():
            values.setdefault(macro.partition("(")[0], set()).add(value)
    different = {macro for macro, found in values.items() if len(found) > 1}
    if not different or any(not different.isdisjoint(words_of(text)) for text in (code.text, *headers.values())):
        return []
    what = f"The file uses no {', no '.join(sorted(different))}, so it computes the same in each variant."
    hint = "The grader defines them for each type and operation: write them in place of a type, `+` and 0."
    return [finding("macro-unread", what, hint=hint)]


def unread_tunables(
    code: DeviceText, headers: Mapping[str, str], exercise: Exercise, tunables: Mapping[str, int]
) -> list[Finding]:
    """Return a note on each tunable that changes the launches, but that no kernel can know.

    A kernel knows the tunables that it reads, and those in its block size or its arguments. A kernel that reads the
    number of blocks knows the tunables in it.
    """
    words = Counter(word for text in (code.text, *headers.values()) for word in _words(tokens(text)))
    found = []
    for tunable in exercise.tunables:
        value = tunables[tunable.name]
        is_declared_only = words[tunable.name] == 1 and not words["gridDim"]
        if is_declared_only and value != 1 and _is_hidden(exercise, tunables, tunable.name):
            what = f"{tunable.name} is declared as {value}, but nothing reads it."
            hint = (
                f"The grader launches fewer blocks with a larger {tunable.name}: each block must process more elements."
            )
            found.append(finding("tunable-unread", what, hint=hint))
    return found


def other_constants(code: DeviceText, exercise: Exercise, tunables: Mapping[str, int]) -> list[Finding]:
    """Return a note on each `__constant__` array with elements of another type than the grader copies.

    The layout may be the student's choice. So it is no mistake as long as the results are right.
    """
    found = []
    for plan in _plans(exercise, exercise.cases[0], tunables):
        for symbol, name in plan.constants.items():
            declared = re.search(_CONSTANT.format(re.escape(symbol)), code.text)
            element = None if declared is None else " ".join(declared[1].split())
            wanted = plan.buffer(name)
            if element is not None and not is_element_of(element, wanted):
                copied = element_name(wanted)
                what = (
                    f"`{symbol}` is an array of `{element}`, but the grader copies values of type `{copied}` into it."
                )
                hint = f"Declare it as in the skeleton: `__constant__ {copied} {symbol}[...];`."
                found.append(finding("constant-type", what, hint=hint))
    return found


def _words(found: Sequence[Token]) -> Iterator[str]:
    for token in found:
        yield from (piece.text for piece in (token.within or (token,)) if piece.kind == "word")


def _is_hidden(exercise: Exercise, tunables: Mapping[str, int], name: str) -> bool:
    """Return True if another value changes only the number of blocks, from which no kernel can compute it."""
    allowed = next(tunable.allowed for tunable in exercise.tunables if tunable.name == name)
    other = next((value for value in allowed if value != tunables[name]), None)
    if other is None:
        return False
    for case in exercise.cases:
        own, changed = (_launches(exercise, case, values) for values in (tunables, {**tunables, name: other}))
        pairs = zip(own, changed, strict=False)
        if any(_seen(one) == _seen(two) and one.grid != two.grid for one, two in pairs):
            return True
    return False


def _launches(exercise: Exercise, case: Case, tunables: Mapping[str, int]) -> tuple[Launch, ...]:
    return tuple(launch for plan in _plans(exercise, case, tunables) for launch in plan.launches)


def _plans(exercise: Exercise, case: Case, tunables: Mapping[str, int]) -> list[Plan]:
    """Return the plan of a case; none if the exercise's code fails, which its checks report."""
    with suppress(InstructorsMistake):
        return [make_plan(exercise, problem_of(case, tunables))]
    return []


def _seen(launch: Launch) -> object:
    return launch.kernel, launch.block, [arg for arg in launch.args if not isinstance(arg, str)]
