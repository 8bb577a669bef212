"""Variables of a module do not outlive a case, so that one cannot reveal a hidden case's size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from block_sums import EXERCISE, INTS, TREE, changed, graded

from pytest_gpulab import concepts
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.exercise import UsesCheck
from pytest_gpulab.grading.time_limits import TimeBudget, TimeLimits, limited

SECRET, INITIAL = 391, 77777
CASES = (*EXERCISE.cases[:2], replace(EXERCISE.cases[2], name="secret", size=SECRET, variant=INTS, hidden=True))
COUNTED_SIZE = 5000
TELLS = changed(
    changed(TREE, "__global__", f"__device__ unsigned kept = {INITIAL};\n__global__"),
    "if (threadIdx.x == 0) out",
    f"if (i == 0) {{\n        if (n < {COUNTED_SIZE // 8}) kept = n;\n        else weighted = kept;\n    }}\n"
    "    if (threadIdx.x == 0) out",
).replace("weight * tile[0]", "weighted")
SOURCE = changed(TELLS, "unsigned i = ", "GPULAB_T weighted = 0;\n    unsigned i = ").replace(
    "if (i == 0) {", "weighted = weight * tile[0];\n    if (i == 0) {"
)


@pytest.mark.parametrize("check", ["uses[idea]", "speedup[0.1x int32]"])
def test_a_launch_after_a_hidden_case_finds_variables_as_the_source_has_them(tmp_path: Path, check: str) -> None:
    uses = UsesCheck("idea", (concepts.barriers(20),), 5, COUNTED_SIZE, variant=INTS)
    first, *others = EXERCISE.speed
    exercise = replace(EXERCISE, cases=CASES, uses=(uses,), speed=(replace(first, threshold=0.1, points=15), *others))
    device = SimulatedDevice()
    try:
        results = graded(tmp_path, device, SOURCE, exercise)
    finally:
        device.close()
    assert results["correct[secret]"].verdict == "passed"
    (found,) = results[check].findings
    text = " ".join((found.what, *found.evidence))
    assert f"{INITIAL}" in text and f"{SECRET}" not in text


def test_a_large_launch_that_is_wrong_after_the_first_earns_no_speed_beside_a_count(tmp_path: Path) -> None:
    """A count resets the variables between the timed launch, with which the other count is compared, and its second."""
    sizes = {"idea": COUNTED_SIZE, "other": COUNTED_SIZE // 2}
    uses = tuple(UsesCheck(name, (concepts.barriers(20),), 2.5, size, variant=INTS) for name, size in sizes.items())
    first, *others = EXERCISE.speed
    exercise = replace(EXERCISE, uses=uses, speed=(replace(first, threshold=0.1, points=15), *others))
    counting = changed(TREE, "__global__", "__device__ unsigned blocks;\n__global__")
    late = f"if (n > {COUNTED_SIZE} && atomicAdd(&blocks, 1u) >= gridDim.x) tile[0] = 0;\n        out"
    source = changed(counting, "if (threadIdx.x == 0) out", f"if (threadIdx.x == 0) {{\n        {late}") + "}"
    device = SimulatedDevice()
    try:
        results = graded(tmp_path, device, source, exercise)
    finally:
        device.close()
    assert results["uses[idea]"].verdict == "passed"
    (found,) = results["speedup[0.1x int32]"].findings
    assert found.code == "wrong-result"


def test_only_the_module_that_was_launched_last_keeps_its_variables() -> None:
    source = "__device__ int kept[4];\n__global__ void k() { kept[threadIdx.x] = 7; }"
    device, budget = SimulatedDevice(), TimeBudget(TimeLimits())
    modules = [device.compile(source) for _ in range(2)]
    for module in (modules[0], modules[0], modules[1]):
        limited(module, budget).launch("k", (1,), (4,), [])
    assert [any(module.read_symbol("kept")) for module in modules] == [False, True]


def test_a_module_with_two_proxies_keeps_its_variables() -> None:
    source = "__device__ int kept[4];\n__global__ void k() { kept[threadIdx.x] += 7; }"
    device, budget = SimulatedDevice(), TimeBudget(TimeLimits())
    module = device.compile(source)
    for proxy in (limited(limited(module, budget), budget), limited(module, budget)):
        proxy.launch("k", (1,), (4,), [])
    assert list(module.read_symbol("kept")) == [14, 0, 0, 0] * 4
