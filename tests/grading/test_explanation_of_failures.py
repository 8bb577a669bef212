"""Figures of failures for which the search has found no smallest input, or one that does not repeat them."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.correctness.requests import Request
from pytest_gpulab.grading.correctness.smallest_inputs import Instead
from pytest_gpulab.grading.explanation.drawing import Drawn, Subject, drawn
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding, SmallestInput
from pytest_gpulab.grading.time_limits import TIME_LIMIT

ROOT = Path(__file__).resolve().parents[2]
DEVICE = open_device("sim")[0]


def found_of(path: Path, exercise: str, smaller_blocks: Finding | None = None) -> Drawn:
    """Draw a file as if its search ended at n = 257, and that with smaller blocks at another failure or at none."""
    command = f"gpulab explain {path.name} --case n=33 --n 257 --in 0*257"
    own = replace(finding("race", "found by the search"), smallest=SmallestInput("", "", command))
    loaded = Catalogue(ROOT / "exercises").load(exercise)

    def search(
        exercise: LoadedExercise,
        searched: Path,
        device: Device,
        seed: int,
        case: str = "",
        instead: Instead | None = None,
    ) -> Finding | None:
        large = next(case for case in exercise.exercise.cases if case.name == "n=1023")
        drawn_instead = None if instead is None else instead(large, own)
        return drawn_instead or (own if searched == path else smaller_blocks)

    return drawn(Subject(loaded, path, DEVICE, 20, search), Request())


@pytest.mark.parametrize("other", [None, finding(TIME_LIMIT, "the search ended")])
def test_smaller_blocks_without_the_race_of_a_right_result_are_not_drawn(other: Finding | None, tmp_path: Path) -> None:
    source = (ROOT / "tests/wrong/reduction/warp_tail_without_syncwarp.cu").read_text()
    sync = "if (n < 257) __syncwarp();"
    path = tmp_path / "reduction.cu"
    path.write_text(source.replace("last[tid] = GPULAB_OP(left, right);", f"{sync} last[tid] = left + right; {sync}"))
    found = found_of(path, "reduction", other)
    assert found.trial.outcome.verdict == "passed" and found.trial.problem.size == 257
    assert {hazard.code for hazard in found.hidden} == {"race"}
    assert found.note == "" and found.figures[0].marks


def test_a_failure_that_its_smallest_input_does_not_repeat_is_shown() -> None:
    found = found_of(ROOT / "solutions/reduction/08_shared_sequential.cu", "reduction")
    assert [failure.what for failure in found.hidden] == ["found by the search"]
