"""The elements that a wrong result adds up, from runs on the simulated GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import block_sums
import numpy as np
import pytest
from wrong_values import plan

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Array, Expected, Problem, Tunable
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.correctness import relation, shrinking
from pytest_gpulab.grading.correctness.trials import Trial
from pytest_gpulab.grading.diagnosis.compare import CaseOutcome
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.plans.prepare import Prepared
from pytest_gpulab.grading.plans.replay import Run
from pytest_gpulab.grading.time_limits import USUAL
from pytest_gpulab.numerics import fill
from pytest_gpulab.single_kernel import single_kernel


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("sim")[0]


def running_sum(values: Array) -> Array:
    return np.cumsum(values, dtype=values.dtype)


ONE_BLOCK = single_kernel(
    "Prefix sums within a block",
    "sums",
    inputs={"in": np.int32},
    output=np.int32,
    reference=running_sum,
    values={"few": lambda rng, shape: fill("random", shape[0], np.int32, rng)},
    tunables=(Tunable("BLOCK_SIZE", (32,)),),
    mixable=True,
    speed={},
)
SCAN = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
__global__ void sums(const int *in, int *out, int n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    int sum = 0;
    for (unsigned k = 0; k <= i && k < n; ++k)
        sum += in[k];
    if (i < n)
        out[i] = sum;
}
"""


def first_wrong(folder: Path, device: Device, old: str, new: str) -> Finding:
    """Return the first finding of a scan with one mistake."""
    (folder / "sums.cu").write_text(block_sums.changed(SCAN, old, new))
    loaded = LoadedExercise("sums", folder, ONE_BLOCK)
    grader = Grader(loaded, folder / "sums.cu", device, seed=3, limits=USUAL._replace(causes=False))
    results = (grader.run(check) for check in checks_of(ONE_BLOCK) if check.kind in ("compile", "correct"))
    return next(found for result in results for found in result.findings if found.code == "wrong-result")


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        pytest.param("++k", "k += 2", "in[0], expected in[0] + in[1]", id="missing"),
        pytest.param("sum += in[k]", "sum += 2 * in[k]", "2 * in[0], expected in[0]", id="factor"),
        pytest.param("sum += in[k]", "sum = in[k] - sum", "-in[0] + in[1], expected in[0] + in[1]", id="sign"),
        pytest.param("sum += in[k]", "sum += 100 * in[k]", "100 * in[0], expected in[0]", id="large factor"),
        pytest.param("int sum = 0", "int sum = 5", "in[0] + 5, expected in[0]", id="start"),
        pytest.param("int sum = 0", "int sum = 1234567890", "in[0] + 1234567890, expected in[0]", id="large start"),
    ],
)
def test_a_wrong_result_names_the_elements_that_it_adds(
    tmp_path: Path, device: Device, old: str, new: str, relation: str
) -> None:
    found = first_wrong(tmp_path, device, old, new)
    assert found.smallest is not None and f"is {relation}" in found.smallest.relation
    assert found.smallest.relation in found.smallest.lines


def test_a_sum_names_ranges_of_neighbours(tmp_path: Path, device: Device) -> None:
    found = first_wrong(tmp_path, device, "k <= i", "k < (i < 7 ? i + 1 : 7)")
    assert found.smallest is not None
    assert found.smallest.relation == "out[7] is in[0] + ... + in[6], expected in[0] + ... + in[7]"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("sum += in[k]", "sum = max(sum, in[k])", id="maximum"),
        pytest.param("sum += in[k]", "sum += in[k] * in[k]", id="squares"),
        pytest.param("sum += in[k]", "sum += in[k] / 2", id="quotient"),
    ],
)
def test_a_result_that_is_no_sum_of_elements_has_no_relation(
    tmp_path: Path, device: Device, old: str, new: str
) -> None:
    """These kernels give digits for some coded inputs; others show that they do not add elements."""
    found = first_wrong(tmp_path, device, old, new)
    assert found.smallest is not None and not found.smallest.relation


def test_an_element_in_the_place_of_another_is_named() -> None:
    elements = [("in", "in[y=0, x=1]"), ("in", "in[y=1, x=0]")]
    kernel, exercise = (relation._Linear(np.zeros(1), np.array([row])) for row in ([1.0, 0.0], [0.0, 1.0]))
    hint = relation._hint(0, kernel, exercise, elements)
    assert hint.startswith("A thread takes in[y=0, x=1] in the place of in[y=1, x=0].")


@pytest.mark.parametrize(("factor", "asks"), [(32.0, True), (4.0, True), (2.0, False), (6.0, False)])
def test_an_element_that_counts_a_power_of_two_may_be_added_to_itself(factor: float, asks: bool) -> None:
    elements = [("in", "in[0]"), ("in", "in[1]")]
    kernel, exercise = (relation._Linear(np.zeros(1), np.array([row])) for row in ([0.0, factor], [1.0, 1.0]))
    hint = relation._hint(0, kernel, exercise, elements)
    assert (f"Follow in[1]: it counts {factor:.0f} times" in hint and "add its own value to itself" in hint) == asks


def test_the_element_to_follow_replaces_a_general_hint_only(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = block_sums.changed(block_sums.TREE, "s > 0", "s > 1")
    hints = {found.hint for result in block_sums.graded(tmp_path, device, wrong).values() for found in result.findings}
    assert not any(hint.startswith("Follow") for hint in hints)  # a product of two inputs
    found = first_wrong(tmp_path, device, "++k", "k += 2")
    general = replace(found, hint=shrinking.HINTS["wrong-result"])
    assert shrinking.with_smallest(general, found.smallest, "Follow in[1]").hint == "Follow in[1]"
    assert shrinking.with_smallest(found, found.smallest, "Follow in[1]").hint == found.hint


@pytest.mark.parametrize(
    ("at", "value", "got", "hint"),
    [
        (258, 1, 2, "Follow in[258]: which threads add it"),
        (258, 1, 0, "Follow in[258]: which thread reads it"),
        (258, 1, 16, "Follow in[258]: it counts 16 times."),
        (258, 1, -1515870810, ""),  # garbage
        (258, 5, 0, ""),
    ],
)
def test_the_only_element_of_a_long_input_is_followed(at: int, value: int, got: int, hint: str) -> None:
    values, out = np.zeros(300, np.int32), np.array([got], np.int32)
    values[at] = value
    prepared = Prepared(plan(300, 2, 256, size=1), {"in": values}, Expected({"out": np.array([value])}))
    trial = Trial(
        ONE_BLOCK.cases[0], Problem(300, {}), prepared, CaseOutcome("failed", (), (Run({"out": out}),)), ("n",)
    )
    found = relation.hint_of_single(trial)
    assert found.startswith(hint) and bool(found) == bool(hint)
