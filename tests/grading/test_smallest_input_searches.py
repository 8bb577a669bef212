"""Searches for the smallest failing input of a kernel that sums blocks: what is searched, and within which bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import block_sums
import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Case, Expected, SafeCheck
from pytest_gpulab.grading.correctness import shrinking
from pytest_gpulab.grading.grade import CheckResult, SmallestInput
from pytest_gpulab.reports.visibility import for_student


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("sim")[0]


RACE = block_sums.changed(
    block_sums.TREE, "GPULAB_T(0);\n    __syncthreads();", "GPULAB_T(0);"
)  # the result is right in lockstep


SAFE = (SafeCheck("memory", 5), SafeCheck("race", 5))


def test_a_race_has_the_smallest_input_that_shows_it(device: Device, tmp_path: Path) -> None:
    found = block_sums.graded(tmp_path, device, RACE, replace(block_sums.EXERCISE, safe=SAFE))
    (finding,) = found["safe[race]"].findings
    assert finding.smallest is not None
    assert finding.smallest.what == "n = 1, in = [1], weight = [4]"
    assert "--weight 4" in finding.smallest.command


WRONG_SUM = block_sums.changed(block_sums.TREE, "s > 0", "s > 1")


def test_hidden_cases_are_not_shrunk(device: Device, tmp_path: Path) -> None:
    first, *others = block_sums.EXERCISE.cases
    hidden = (first, *(replace(case, hidden=True) for case in others))
    found = block_sums.graded(tmp_path, device, WRONG_SUM, replace(block_sums.EXERCISE, cases=hidden))
    assert {name for name, result in found.items() if result.verdict == "failed"} > {"correct[n=block]"}
    assert {finding.smallest for result in found.values() for finding in result.findings} == {None}


def test_a_hidden_case_does_not_get_the_input_of_a_visible_one(device: Device, tmp_path: Path) -> None:
    first, second, third = block_sums.EXERCISE.cases
    cases = (first, second, replace(third, hidden=True))
    found = block_sums.graded(tmp_path, device, WRONG_SUM, replace(block_sums.EXERCISE, cases=cases))
    smallest = {
        name: result.findings[0].smallest
        for name, result in found.items()
        if name.startswith("correct[n=") and result.findings
    }
    assert smallest["correct[n=block]"] is not None and smallest["correct[n=300]"] is None


BEYOND = block_sums.changed(block_sums.TREE, "in[i]", "in[i + 1]")


def test_the_failure_is_beside_the_smallest_input_where_it_is_another(device: Device, tmp_path: Path) -> None:
    one, block, floats = block_sums.EXERCISE.cases
    for order in ((one, block, floats), (block, one, floats)):  # plugins may shuffle the checks
        found = block_sums.graded(tmp_path, device, BEYOND, replace(block_sums.EXERCISE, cases=order))
        own, other = (found[f"correct[{name}]"].findings[0] for name in ("n=1", "n=block"))
        assert own.smallest is not None and other.smallest is not None and own.what != other.what
        assert other.smallest.what == f"{own.smallest.what}: {own.what}"


def test_each_kind_of_failure_is_searched_once(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    search = shrinking.Shrinker._search

    def noted(self: Any, case: Case, *more: Any) -> Any:
        searched.append(case.name)
        return search(self, case, *more)

    monkeypatch.setattr(shrinking.Shrinker, "_search", noted)
    found = block_sums.graded(tmp_path, device, WRONG_SUM)
    assert searched == ["n=block"]
    same, other = (found[name].findings[0].smallest for name in ("correct[n=block]", "correct[n=300]"))
    assert same is not None and other is None  # that of another variant


def test_values_that_depend_on_each_other_are_not_replaced(device: Device, tmp_path: Path) -> None:
    found = block_sums.graded(tmp_path, device, WRONG_SUM, replace(block_sums.EXERCISE, mixable=False))
    smallest = found["correct[n=block]"].findings[0].smallest
    assert smallest is not None and smallest.command.endswith("--in 3,3 --weight 2")


def test_a_search_is_bounded_by_its_number_of_trials(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[Any] = []
    run = shrinking.Trials.run
    monkeypatch.setattr(shrinking.Trials, "run", lambda *words: trials.append(words) or run(*words))
    block_sums.graded(tmp_path, device, WRONG_SUM)
    assert 10 < len(trials) <= sum(shrinking.MAX_WORK.values()) + shrinking.MAX_SHARE


def test_an_exercise_that_refuses_other_sizes_and_values_keeps_its_case(device: Device, tmp_path: Path) -> None:
    def reference(problem: Any, inputs: Any) -> Expected:
        if problem.size != 300 or inputs["in"].max() < 2:
            raise ValueError("no such input")
        return block_sums.reference(problem, inputs)

    cases = (Case("n=1", 1, 10, variant=block_sums.INTS), Case("n=300", 300, 40, variant=block_sums.INTS))
    exercise = replace(block_sums.EXERCISE, cases=cases, reference=reference)
    found = block_sums.graded(tmp_path, device, WRONG_SUM, exercise)
    smallest = found["correct[n=300]"].findings[0].smallest
    assert smallest is not None and smallest.command.endswith("--in random --weight 3 --seed 3")


def test_students_see_no_input_of_a_hidden_case(device: Device) -> None:
    shown = SmallestInput("n = 3", "", "gpulab explain")
    result = CheckResult("correct[a]", "correct", "failed", 0.0, 1.0, hidden=True)
    from pytest_gpulab.grading.grade import Finding, Grade, Provenance

    finding = Finding("wrong-result", "wrong", smallest=shown)
    grade = Grade("a.cu", "x", (replace(result, findings=(finding,)),), Provenance("", "", "", "", 1, "", "", ""))
    assert for_student(grade).checks[0].findings[0].smallest is None
