"""Right answers in unusual clothes, as students and textbooks write them, earn all correctness points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from graded_folders import EXERCISES

from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Catalogue(ROOT / "exercises")
HONEST = sorted(path for name in EXERCISES for path in ROOT.glob(f"tests/honest/{name}/*.cu"))


@pytest.fixture(scope="module")
def device() -> Iterator[SimulatedDevice]:
    """One device for all kernels, as in a class: an exercise's baseline is estimated once for it."""
    with closing(SimulatedDevice()) as opened:
        yield opened


@pytest.mark.parametrize("path", HONEST, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_honest_kernel_earns_all_correctness_points(path: Path, device: SimulatedDevice) -> None:
    loaded = CATALOGUE.load(path.parent.name)
    grader = Grader(loaded, path, device, seed=20)
    bonuses = "uses", "speedup"  # for an idea, not for being right
    checks = [check for check in checks_of(loaded.exercise) if check.required or check.kind not in bonuses]
    checks = [check for check in checks if check.kind != "speedup"]
    results = [grader.run(check) for check in checks]
    assert [result for result in results if result.verdict != "passed"] == []
    assert [result for result in results if result.kind == "safe" and result.findings] == [], (
        "not even a harmless hazard"
    )
    assert sum(result.points for result in results) == sum(check.max_points for check in checks) > 0


@pytest.mark.parametrize(
    ("of", "block", "items"),
    [
        ("tests/honest/divergence/many_elements_per_thread.cu", 256, 32),
        ("solutions/histogram/02_many_items.cu", 1024, 64),
    ],
    ids=["divergence", "histogram"],
)
def test_many_elements_per_thread_reach_the_required_speedup_in_estimates(
    of: str, block: int, items: int, device: SimulatedDevice, tmp_path: Path
) -> None:
    """At the size of an estimate they have fewer blocks than the GPU has SMs, unlike at the size for a GPU."""
    path = tmp_path / "many.cu"
    source = re.sub(r"TUNABLE\(BLOCK_SIZE, \d+\)", f"TUNABLE(BLOCK_SIZE, {block})", (ROOT / of).read_text())
    path.write_text(re.sub(r"TUNABLE\(ITEMS_PER_THREAD, \d+\)", f"TUNABLE(ITEMS_PER_THREAD, {items})", source))
    loaded = CATALOGUE.load(Path(of).parent.name)
    grader = Grader(loaded, path, device, seed=20)
    checks = [check for check in checks_of(loaded.exercise) if check.kind == "speedup" and check.required]
    assert [grader.run(check).verdict for check in checks] == ["passed"]


def test_there_are_honest_kernels_for_each_exercise() -> None:
    assert {path.parent.name for path in HONEST} == set(EXERCISES)
