"""Trials that a user requests in words: a case, a size, values of the inputs."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_gpulab import UserError
from pytest_gpulab.exercise import Array, Case, Exercise, Plan, Problem, Size
from pytest_gpulab.grading.diagnosis.simple_inputs import parsed
from pytest_gpulab.grading.plans.prepare import Prepared

from .sizes import extents_of
from .trials import Trials


class RequestError(UserError):
    """A request that does not fit the exercise: one line."""


@dataclass(frozen=True)
class Request:
    """A request."""

    case: str = ""  # a case's name; empty for the first visible case
    size: tuple[int, ...] = ()  # extents; empty for those of the case, or of the listed values
    # input to its values, as a list (see `simple_inputs`) or the name of an input pattern
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if the user leaves everything to the grader."""
        return not (self.case or self.size or self.values)


def request_of(command: str) -> Request:
    """Return the request in a finding's command, `gpulab explain FILE --case NAME --n 3 --in 1,2,3`."""
    words = shlex.split(command)[3:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    case, n, size, _ = (options.pop(f"--{name}", "") for name in ("case", "n", "size", "seed"))
    extents = tuple(map(int, (size or n).split("x"))) if size or n else ()
    return Request(case, extents, {name.removeprefix("--"): values for name, values in options.items()})


def requested(exercise: Exercise, trials: Trials, request: Request) -> tuple[Case, Problem, Prepared]:
    """Return the case, the problem and the data of a request.

    Raises RequestError if the request does not fit the exercise, InstructorsMistake if the exercise does not accept
    this size or these values, and BuildFailed if the submission has no build.
    """
    case = _case(exercise, request.case)
    own = case.problem(trials.build(case).tunables).size
    lists = {name: word for name, word in request.values.items() if not word[:1].isalpha() or word in ("inf", "nan")}
    patterns = {word for name, word in request.values.items() if name not in lists} or {case.patterns[0]}
    if len(patterns) > 1:
        raise RequestError(f"one input pattern for all inputs, not {' and '.join(sorted(patterns))}")
    size = _size(own, request, lists)

    def change(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {
            name: _listed(name, lists[name], values) if name in lists else values for name, values in inputs.items()
        }

    problem, prepared = trials.prepared(case, size, patterns.pop(), change)
    _check_names(prepared.plan, request)
    return case, problem, prepared


def _case(exercise: Exercise, name: str) -> Case:
    visible = [case for case in exercise.cases if not case.hidden]
    found = next((case for case in visible if name in ("", case.name)), None)
    if found is None:
        raise RequestError(f"no case is called {name!r}; there are {', '.join(case.name for case in visible)}")
    return found


def _size(own: Size, request: Request, lists: Mapping[str, str]) -> Size:
    if request.size:
        if len(request.size) != len(extents_of(own)) or min(request.size) < 1:
            raise RequestError(f"a size of this exercise has {len(extents_of(own))} positive extents")
        return request.size if isinstance(own, tuple) else request.size[0]
    if lists and not isinstance(own, tuple):
        return max(_parsed(name, word, np.dtype(float)).size for name, word in lists.items())
    return own


def _parsed(name: str, word: str, dtype: np.dtype[Any]) -> Array:
    try:
        return parsed(word, dtype)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"--{name} {word}: {error}") from None


def _listed(name: str, word: str, own: Array) -> Array:
    values = _parsed(name, word, own.dtype)
    if values.size != own.size:
        raise RequestError(f"--{name} lists {values.size} values; this size needs {own.size}")
    values = values.reshape(own.shape)
    values.setflags(write=False)
    return values


def _check_names(plan: Plan, request: Request) -> None:
    inputs = [buffer.name for buffer in plan.buffers if buffer.role == "input"]
    for name in request.values:
        if name not in inputs:
            raise RequestError(f"--{name} is no input of this exercise; its inputs are {', '.join(inputs)}")
