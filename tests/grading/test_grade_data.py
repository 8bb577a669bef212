import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, SmallestInput

pytestmark = pytest.mark.unit

SMALLEST = SmallestInput("n = 1, in = [0]: out should be [0], is [1]", "fails for every n", "gpulab explain a.cu --n 1")
FINDING = Finding("too-slow", "Slow.", "a.cu:3", ("first", "second"), "Think.", "compile", smallest=SMALLEST)
KERNELS = (
    KernelOccupancy("up", "sm_90", 256, 40, 2048, 6, 48, 0.75, ("registers",), 384),
    KernelOccupancy("down", "sm_90", 64, None, 0, 32, 64, 1.0, ("warps", "blocks"), None),
)
MEASUREMENT = Measurement(
    "2^20",
    np.float64(1.5),
    3.0,
    2.0,
    2.5,
    True,
    occupancy=0.5,
    registers=np.int32(40),
    kernels=KERNELS,  # type: ignore[arg-type]
)
PROVENANCE = Provenance("GPU", "cuda", "sm_90", "nvcc", 7, "1", "0.1", "abc", MappingProxyType({"driver": "580"}))


def check(**changes: Any) -> CheckResult:
    fields: dict[str, Any] = {
        "name": "speedup[2x]",
        "kind": "speedup",
        "verdict": "missed",
        "points": 0.0,
        "max_points": 10.0,
        "findings": (FINDING,),
        "measurement": MEASUREMENT,
        "required": False,
        "printed": "hello\n",
    }
    return CheckResult(**fields | changes)


def grade(*checks: CheckResult) -> Grade:
    return Grade("a.cu", "scan", checks, PROVENANCE)


def builtins_only(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and builtins_only(item) for key, item in value.items())
    return all(map(builtins_only, value)) if type(value) is list else type(value) in (str, int, float, bool, type(None))


def test_results_and_grades_survive_a_journey_through_json() -> None:
    for result in (check(), check(findings=(), measurement=None)):
        assert CheckResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    whole = grade(check(), check(name="compile", kind="compile"))
    rebuilt = Grade.from_dict(json.loads(json.dumps(whole.to_dict())))
    assert rebuilt == whole
    assert rebuilt.to_dict() == whole.to_dict()


def test_plain_data_holds_no_numpy_scalar_no_tuple_and_no_proxy() -> None:
    data = grade(check(points=np.float32(2.5))).to_dict()
    assert builtins_only(data)
    assert data["checks"][0]["measurement"]["registers"] == 40
    assert data["checks"][0]["findings"][0]["evidence"] == ["first", "second"]
    assert [kernel["limited_by"] for kernel in data["checks"][0]["measurement"]["kernels"]] == [
        ["registers"],
        ["warps", "blocks"],
    ]
    assert (data["schema_version"], data["points"], data["max_points"]) == (1, 2.5, 10.0)


def test_a_newer_minor_form_may_have_further_keys_but_another_version_is_refused() -> None:
    data = grade(check()).to_dict()
    data["checks"][0]["invented"] = data["checks"][0]["findings"][0]["invented"] = data["provenance"]["invented"] = 1
    assert Grade.from_dict(data) == grade(check())
    with pytest.raises(ValueError, match="grade of schema version 2; this is version 1"):
        Grade.from_dict(data | {"schema_version": 2})


def test_a_grade_without_kernels_can_be_read() -> None:
    data = grade(check()).to_dict()
    del data["checks"][0]["measurement"]["kernels"]
    rebuilt = Grade.from_dict(data).checks[0].measurement
    assert rebuilt is not None
    assert rebuilt.kernels == ()


def test_checks_that_the_machine_cannot_grade_cost_no_point() -> None:
    whole = grade(check(verdict="passed", points=10.0), check(verdict="not gradable"), check(verdict="failed"))
    assert (whole.points, whole.max_points) == (10.0, 20.0)


def test_student_and_hidden_flags_survive_json() -> None:
    whole = Grade("a.cu", "scan", (check(hidden=True, findings=(replace(FINDING, hidden=True),)),), PROVENANCE, "s17")
    assert Grade.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


def test_a_grade_from_before_students_and_hidden_cases_can_be_read() -> None:
    data = grade(check()).to_dict()
    del data["student"], data["checks"][0]["hidden"], data["checks"][0]["findings"][0]["hidden"]
    assert Grade.from_dict(data) == grade(check())
