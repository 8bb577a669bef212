"""Mistakes in an exercise of one kernel: they are named by the arguments of `single_kernel`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_gpulab.authoring.defects import of_finding
from pytest_gpulab.exercise import Exercise, ExerciseError, Problem, UsesCheck
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_inputs, make_plan, prepare
from pytest_gpulab.single_kernel import Output, single_kernel


def exercise(**arguments: Any) -> Exercise:
    right = {"inputs": {"in": np.float32}, "output": np.float32, "reference": np.square, "speed": {1.5: 20}}
    return single_kernel("Squares", "squares", **(right | arguments))


ARGUMENTS = {
    "three dimensions": ({"dimensions": 3}, "`dimensions` must be 1 or 2, but is 3"),
    "inputs without dtypes": ({"inputs": ["in"]}, "`inputs` must be a mapping of names to dtypes, but is ['in']"),
    "an input called out": ({"inputs": {"out": np.float32}}, "`inputs` has 'out', which is the output's name"),
    "tiers without points": ({"speed": [1.5]}, "`speed` must be a mapping of speedups to points, but is [1.5]"),
    "a use alone": ({"uses": UsesCheck("a", (), 5, 1)}, "`uses` must be a list of UsesCheck, but is a UsesCheck"),
    "a reference that is called": (
        {"reference": np.zeros(2)},
        "`reference` must be a function, but is array([0., 0.])",
    ),
    "values that are drawn": ({"values": np.zeros(2)}, "`values` must be a function, but is array([0., 0.])"),
    "values of a pattern that are drawn": ({"values": {"a": 3}}, "`values` must be a function, but is 3"),
    "a shape": ({"output": Output(np.float32, (5,))}, "`shape` of Output must be a function, but is (5,)"),  # type: ignore[arg-type]  # the mistake
    "a pattern": ({"patterns": "random"}, "`patterns` must be a list of texts, but is 'random'"),
    "other tunables": ({"tunables": ()}, "`tunables` lacks BLOCK_SIZE, the block's extent"),
    "too many points": ({"speed": {2: 95}}, "`speed` and `uses` leave -5 points for the cases"),
}


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_wrong_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ExerciseError) as caught:
        exercise(**arguments)
    assert str(caught.value).startswith(f"single_kernel: {message}")


CALLS = {
    "reference": ({"reference": lambda x, y: x}, "It is called as reference(in)."),
    "tolerance": ({"tolerance": lambda: 0}, "It is called as tolerance(in)."),
    "values": ({"values": lambda shape, rng: rng.random(shape)}, "It is called as values(rng, shape)."),
    "shape": ({"output": Output(np.float32, lambda w, h: (w, h))}, "It is called as shape(n)."),
}


@pytest.mark.parametrize(("arguments", "advice"), CALLS.values(), ids=CALLS)
def test_wrong_parameters_of_a_function(arguments: dict[str, Any], advice: str) -> None:
    made, problem = exercise(**arguments), Problem(8, {"BLOCK_SIZE": 32})
    with pytest.raises(InstructorsMistake) as caught:
        prepare(made, problem, make_plan(made, problem), "random", np.random.default_rng(1))
    defect = of_finding(caught.value.finding, __file__)
    assert defect.instead == advice


def test_a_result_of_the_wrong_shape_has_no_place_in_the_package() -> None:
    made, problem = exercise(reference=lambda x: x[1:]), Problem(8, {"BLOCK_SIZE": 32})
    with pytest.raises(InstructorsMistake) as caught:
        prepare(made, problem, make_plan(made, problem), "random", np.random.default_rng(1))
    what = "The exercise's own `reference` is wrong: the values of 'out' have shape (7,), not (8,)"
    assert caught.value.finding.what == what


def test_a_size_of_other_dimensions() -> None:
    with pytest.raises(InstructorsMistake, match=r"the size \(4, 4\) has 2 extents, but `dimensions` is 1"):
        make_plan(exercise(), Problem((4, 4), {"BLOCK_SIZE": 32}))


def test_values_may_be_a_list() -> None:
    made, problem = exercise(values=lambda rng, shape: [1] * shape[0]), Problem(3, {"BLOCK_SIZE": 32})
    inputs = make_inputs(made, problem, make_plan(made, problem), "random", np.random.default_rng(1))
    assert inputs["in"].tolist() == [1, 1, 1]
