"""The linear relation of outputs to inputs: which elements a wrong result adds up, and how often.

Inputs that are powers of a base show it: the factor of each element is a digit of the result. A relation is reported
only if the powers in reverse order show the same one, and if it predicts the results for random inputs, those of the
kernel and those of the exercise. So it is no coincidence, and kernels that do something else, such as a maximum, have
none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.errors import with_axes
from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.diagnosis.patterns import number

from .sizes import power_of_two
from .trials import Trial

RunOn = Callable[[Mapping[str, Array]], "Trial | None"]
"""Runs the kernel on these inputs; None if that is not possible."""

MAX_ELEMENTS = 32  # of all inputs together
DIGITS = 8  # powers of the base per run
EXACT_WHOLE = 2.0**53  # below it, a double tells whole numbers apart
EXACT_BITS, MAX_BASE_BITS = 24, 16  # of sums in float32, and of the base
ROUNDING = 2.0**-18  # relative to the magnitudes of a sum
MAX_ROWS = 2  # wrong elements that are described
MAX_PIECES = 5  # of a sum in a sentence
DOUBLED_TWICE = 4  # a factor that is a smaller power of two has other causes, too
MAX_FACTOR = 1024  # of the only element that is not 0; a larger result has another cause
MIN_RUN = 4  # neighbours that are written as a range


class Relation(NamedTuple):
    """A relation of wrong outputs to the inputs, in words."""

    words: str = ""  # such as `out[0] is in[0] + in[2], expected in[0] + in[1] + in[2]`; empty if there is none
    hint: str = ""  # the element to follow


@dataclass(frozen=True)
class _Linear:
    """Constants and factors of each output: shapes (outputs,) and (outputs, elements)."""

    constants: Array
    factors: Array

    def predicts(self, values: Array, results: Array) -> bool:
        """Return True if these are the results of inputs with these values, up to rounding and wrap-around."""
        found = self.factors @ values + self.constants
        if results.dtype.kind in "iu":
            return bool((found.astype(np.int64).astype(results.dtype) == results).all())
        size = np.abs(self.factors) @ np.abs(values) + np.abs(self.constants)
        return bool((np.abs(found - results) <= ROUNDING * size).all())


def relation_of(trial: Trial, run_on: RunOn) -> Relation:
    """Return the relation of a trial's first wrong elements to its random inputs."""
    inputs = trial.prepared.inputs
    wrong = trial.wrong(trial.outcome.runs[0]) if trial.outcome.runs else {}
    count = sum(values.size for values in inputs.values())
    if not wrong or count > MAX_ELEMENTS or any(values.itemsize < np.float32().itemsize for values in inputs.values()):
        return Relation()
    name = next(iter(wrong))
    kernels, exercises = _linear(inputs, partial(_results, name, run_on))
    values = np.concatenate([each.reshape(-1) for each in inputs.values()]).astype(np.float64)
    actual, expected = _results_of(trial, name)
    if kernels is None or exercises is None:
        return Relation()
    if not kernels.predicts(values, actual) or not exercises.predicts(values, expected):
        return Relation()
    return _worded(name, trial, kernels, exercises)


def hint_of_single(trial: Trial) -> str:
    """Return the hint on the only input element that is not 0, but 1, if the first wrong output is a multiple of it."""
    inputs, outputs = trial.prepared.inputs, trial.outcome.runs[:1]
    wrong = trial.wrong(outputs[0]) if outputs else {}
    ones = [(name, at) for name, values in inputs.items() for at in np.argwhere(values)[:2]]
    if not wrong or len(ones) != 1 or inputs[ones[0][0]][tuple(ones[0][1])] != 1:
        return ""
    (of, at), name = ones[0], next(iter(wrong))
    actual, expected = (values[wrong[name].reshape(-1)][:1] for values in _results_of(trial, name))
    if inputs[of].itemsize < np.float32().itemsize or not 0 <= actual[0] <= MAX_FACTOR or actual[0] % 1:
        return ""
    kernels, exercises = (_Linear(np.zeros(1), values[None].astype(np.float64)) for values in (actual, expected))
    return _hint(0, kernels, exercises, [(of, f"{of}[{with_axes(tuple(at.tolist()))}]")])


def _results(name: str, run_on: RunOn, inputs: Mapping[str, Array]) -> Array | None:
    """Return an output of the kernel and the expected one for some inputs, shape (2, outputs)."""
    trial = run_on(inputs)
    if trial is None or not trial.outcome.runs or name not in trial.outcome.runs[0].outputs:
        return None
    return np.stack(_results_of(trial, name)).astype(np.float64)


def _results_of(trial: Trial, name: str) -> tuple[Array, Array]:
    actual = trial.outcome.runs[0].outputs[name]
    expected = np.broadcast_to(np.asarray(trial.prepared.expected.values[name]), actual.shape)
    return actual.reshape(-1), expected.reshape(-1)


def _linear(
    inputs: Mapping[str, Array], results: Callable[[Mapping[str, Array]], Array | None]
) -> tuple[_Linear | None, _Linear | None]:
    """Return the kernel's and the exercise's factors, each None if the results have no such factors."""
    count = sum(values.size for values in inputs.values())
    constants = results(_shaped(np.zeros(count), inputs))
    if constants is None:
        return None, None
    factors = np.zeros((*constants.shape, count))
    for begin in range(0, count, DIGITS):
        places = np.arange(begin, min(begin + DIGITS, count))
        for step in (1, -1):
            base = 2 ** min(EXACT_BITS // places.size - 1, MAX_BASE_BITS)
            values = np.zeros(count)
            values[places[::step]] = float(base) ** np.arange(places.size)
            coded = results(_shaped(values, inputs))
            digits = None if coded is None else _digits(coded - constants, base, places.size)
            if digits is None or (step < 0 and (factors[..., places] != digits[..., ::step]).any()):
                return None, None
            factors[..., places[::step]] = digits
    return _Linear(constants[0], factors[0]), _Linear(constants[1], factors[1])


def _shaped(values: Array, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values of all elements as inputs of these types and shapes."""
    ends = np.cumsum([own.size for own in inputs.values()])[:-1]
    parts = zip(inputs.items(), np.split(values, ends), strict=True)
    return {name: part.astype(own.dtype).reshape(own.shape) for (name, own), part in parts}


def _digits(left: Array, base: int, count: int) -> Array | None:
    """Return the digits of numbers, which may be negative, the lowest first; None if there are more than `count`."""
    digits = []
    for _ in range(count):
        digits.append((left + base // 2 - 1) % base - (base // 2 - 1))
        left = (left - digits[-1]) / base
    return np.stack(digits, axis=-1) if (left == 0).all() else None  # not for NaN


def _worded(name: str, trial: Trial, kernels: _Linear, exercises: _Linear) -> Relation:
    elements = [
        (of, f"{of}[{with_axes(at)}]")
        for of, values in trial.prepared.inputs.items()
        for at in np.ndindex(values.shape)
    ]
    differs = (kernels.factors != exercises.factors).any(axis=1) | (kernels.constants != exercises.constants)
    rows = np.flatnonzero(differs)[:MAX_ROWS].tolist()
    shape = trial.outcome.runs[0].outputs[name].shape
    found = []
    for row in rows:
        at = tuple(int(i) for i in np.unravel_index(row, shape))
        is_, should = (_sum(of.factors[row], of.constants[row], elements) for of in (kernels, exercises))
        if is_ and should:
            found.append(f"{name}[{with_axes(at)}] is {is_}, expected {should}")
    return Relation("; ".join(found), _hint(rows[0], kernels, exercises, elements)) if found else Relation()


def _sum(factors: Array, constant: float, elements: list[tuple[str, str]]) -> str:
    """Return a sum in words, with ranges of neighbours; empty if it is long."""
    pieces: list[tuple[float, str]] = []
    places = np.flatnonzero(factors).tolist()
    keys = [(elements[place][0], float(factors[place]), place - index) for index, place in enumerate(places)]
    for (_, factor, _), group in groupby(zip(keys, places, strict=True), lambda pair: pair[0]):
        own = [elements[place][1] for _, place in group]
        if len(own) >= MIN_RUN:
            text = f"{own[0]} + ... + {own[-1]}"
            own = [text if factor == 1 else f"({text})"]
        pieces += [(factor, text) for text in own]
    if constant or not pieces:
        is_whole = float(constant).is_integer() and abs(constant) < EXACT_WHOLE
        pieces.append((1 if constant >= 0 else -1, number(int(abs(constant)) if is_whole else abs(constant))))
    if len(pieces) > MAX_PIECES:
        return ""
    signed = [f"{'-' if factor < 0 else '+'} {_times(abs(factor))}{text}" for factor, text in pieces]
    return " ".join(signed).removeprefix("+ ").replace("- ", "-", 1 if signed[0][0] == "-" else 0)


def _times(factor: float) -> str:
    return "" if factor == 1 else f"{factor:.0f} * "


def _hint(row: int, kernels: _Linear, exercises: _Linear, elements: list[tuple[str, str]]) -> str:
    """Return the hint on an element in the place of another, on a missing one, or on one that is added too often."""
    more = kernels.factors[row] - exercises.factors[row]
    missing, often = np.flatnonzero((more < 0) & (kernels.factors[row] == 0)), np.flatnonzero(more)
    instead = np.flatnonzero(more > 0)
    largest = int(np.argmax(kernels.factors[row]))
    if (factor := int(kernels.factors[row][largest])) >= DOUBLED_TWICE and power_of_two(factor):
        return (
            f"Follow {elements[largest][1]}: it counts {factor} times. Do several threads add it, or does a thread add "
            "its own value to itself, as a shuffle does in a lane that has no lane to take a value from?"
        )
    if missing.size == instead.size == 1 and elements[missing[0]][0] == elements[instead[0]][0]:
        read, meant = elements[instead[0]][1], elements[missing[0]][1]
        return f"A thread takes {read} in the place of {meant}. How is the index made, and from which extents?"
    if missing.size:
        return f"Follow {elements[missing[0]][1]}: which thread reads it, in which step, and where does its value go?"
    if often.size:
        return f"Follow {elements[often[0]][1]}: which threads add it, in which steps, and is each of them meant to?"
    return "Follow the value that is added: does it come from a start value, or from memory that no thread has set?"
