"""A submission's tunables, read from the compiled module."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpulab.devices.protocol import Module
from pytest_gpulab.exercise import Tunable
from pytest_gpulab.grading.findings import finding

from .problems import Problem

TUNABLE_PREFIX = "gpulab_tunable_"
TUNABLE_BYTES = 4


def read_tunables(module: Module, tunables: Sequence[Tunable]) -> tuple[dict[str, int], list[Problem]]:
    """Return the values by name, and a problem per tunable without an accepted value.

    Such a tunable gets one of its accepted values, so that the rest of the file can be compared with the plans.
    """
    values, problems = dict[str, int](), list[Problem]()
    for tunable in tunables:
        value = _value_or_problem(module, tunable)
        if isinstance(value, Problem):
            problems.append(value)
            value = tunable.allowed[len(tunable.allowed) // 2]
        values[tunable.name] = value
    return values, problems


def _value_or_problem(module: Module, tunable: Tunable) -> int | Problem:
    symbol, name, accepted = TUNABLE_PREFIX + tunable.name, tunable.name, f"accepted: {_listed(tunable.allowed)}"
    if symbol not in module.symbols:
        if tunable.default is not None:
            return tunable.default
        what = f"The file does not declare GPULAB_TUNABLE({name}, value)."
        found = finding("tunable-missing", what, evidence=(accepted,))
        return Problem(found, f"add GPULAB_TUNABLE({name}, value) at file scope")
    contents = module.read_symbol(symbol)
    if len(contents) != TUNABLE_BYTES:
        what = f"The tunable {name} cannot be read back: it is {len(contents)} bytes wide, not {TUNABLE_BYTES}."
        return Problem(finding("tunable-missing", what), f"declare {name} by GPULAB_TUNABLE")
    value = int.from_bytes(contents, "little", signed=True)
    if value not in tunable.allowed:
        what = f"The tunable {name} is {value}, which this exercise does not accept."
        return Problem(finding("tunable-range", what, evidence=(accepted,)), f"change {name} from {value}")
    return value


def _listed(allowed: Sequence[int]) -> str:
    if isinstance(allowed, range):
        step = "" if allowed.step == 1 else f" in steps of {allowed.step}"
        return f"{allowed[0]} to {allowed[-1]}{step}"
    return ", ".join(map(str, allowed))
