"""The second run of a large launch on other inputs, after the one that is costed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubling import EXERCISE, Bench, inputs, kernel, plan, program

from pytest_gpulab.exercise import Array, Plan, Problem

pytestmark = pytest.mark.unit

TIMED = 2**10
OTHER_INPUTS = "in a second run, on other inputs"


def adding(problem: Problem) -> Plan:
    """The plan of a kernel that adds to its output."""
    made = plan(problem)
    return replace(made, buffers=tuple(replace(each, zeroed=each.role == "output") for each in made.buffers))


@pytest.mark.parametrize("overflows", [True, False])
def test_counts_of_a_large_launch_are_compared_on_all_patterns(bench: Bench, overflows: bool) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values % (4 if n == TIMED and overflows else np.inf)
        return {"estimated_ms": 1.0}

    cases = (replace(EXERCISE.cases[0], patterns=("random", "large")), *EXERCISE.cases[1:])
    result = bench.result("speedup[1.5x]", program(twice, has_state=False), plan=adding, cases=cases)
    assert result.verdict == ("failed" if overflows else "passed")
    assert [found.evidence[-1] for found in result.findings] == [OTHER_INPUTS] * overflows


def test_inputs_that_cannot_be_mixed_are_replaced_as_a_whole(bench: Bench) -> None:
    def ascending(problem: Problem, pattern: str, rng: np.random.Generator) -> Mapping[str, Array]:
        return {"in": np.sort(inputs(problem, pattern, rng)["in"])}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n == TIMED:
            seen.append(source.values.copy())
        return kernel(1.0)(options, source, out, n)

    seen: list[Array] = []
    result = bench.result("speedup[1.5x]", program(twice), inputs=ascending, mixable=False)
    assert result.verdict == "passed"
    assert all((np.diff(values) >= 0).all() for values in seen)
    assert not np.array_equal(seen[-1], seen[-2])
