"""Faults and hazards of kernels that are really run, told by the student's names of arrays and by the launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from doubling import PLACE

from pytest_gpulab.devices.protocol import Device, Hazard, KernelFault, Location
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.grade import CheckResult, Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.plans.parameter_names import Scene

EXERCISES = Path(__file__).parents[2] / "exercises"

SUMS = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 64)
__global__ void reduce(const GPULAB_T *from, GPULAB_T *to, unsigned n)
{
    __shared__ GPULAB_T part[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    part[t] = i < n ? from[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned s = BLOCK_SIZE / 2; s > 0; s /= 2) {
        GPULAB_T sum = t < s ? GPULAB_OP(part[t], part[t + s]) : part[t];
        __syncthreads();
        part[t] = sum;
        __syncthreads();
    }
    if (t == 0) to[blockIdx.x] = part[0];
}
"""
STORE = "to[blockIdx.x] = part[0]"


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


def results(tmp_path: Path, gpu: Device, source: str, exercise: str, *names: str) -> dict[str, CheckResult]:
    path = tmp_path / f"{exercise}.cu"
    path.write_text(source)
    loaded = Catalogue(EXERCISES).load(exercise)
    grader = Grader(loaded, path, gpu, seed=0)
    return {check.name: grader.run(check) for check in checks_of(loaded.exercise) if check.name in names}


def only_finding(tmp_path: Path, gpu: Device, source: str, exercise: str, name: str) -> Finding:
    return results(tmp_path, gpu, source, exercise, name)[name].findings[0]


def mistaken(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def test_an_array_out_of_bounds_has_the_students_name_an_index_and_a_length(tmp_path: Path, gpu: Device) -> None:
    source = mistaken(SUMS, STORE, "to[i] = part[0]")
    found = only_finding(tmp_path, gpu, source, "reduction", "correct[n=block+1]")
    assert found.what == "Invalid __global__ write of size 4 bytes: `to[64]` written, `to` has 2 elements"
    assert "in launch 1 of 2 (`reduce`): its `to` becomes `from` of launch 2 (`reduce`)" in found.evidence


def test_an_unsigned_index_below_zero_is_reported_as_negative(tmp_path: Path, gpu: Device) -> None:
    source = mistaken(SUMS, "from[i] :", "from[i - 1] :")
    found = only_finding(tmp_path, gpu, source, "reduction", "correct[n=2]")
    assert found.what == "Invalid __global__ read of size 4 bytes: `from[-1]` read, `from` has 2 elements"
    assert not any("launch" in line for line in found.evidence)  # there is one only


def test_unwritten_elements_of_an_earlier_launch_have_both_names(tmp_path: Path, gpu: Device) -> None:
    source = mistaken(SUMS, "if (t == 0) to", "if (i == n - 1) to")
    found = results(tmp_path, gpu, source, "reduction", "correct[n=block+1]", "safe[uninitialised]")
    (unsafe,) = found["safe[uninitialised]"].findings
    assert unsafe.what == "Uninitialized __global__ memory read of size 4 bytes: `from[0]` was never written"
    assert unsafe.evidence[1] == "in launch 2 of 2 (`reduce`): its `from` is `to` of launch 1 (`reduce`)"


def test_missing_dynamic_shared_memory_is_reported(tmp_path: Path, gpu: Device) -> None:
    source = mistaken(SUMS, "__shared__ GPULAB_T part[BLOCK_SIZE];", "extern __shared__ GPULAB_T part[];")
    found = only_finding(tmp_path, gpu, source, "reduction", "correct[n=33]")
    assert found.what.endswith("`part[0]` written, but the kernel is launched without dynamic shared memory")
    assert "fixed size" in found.hint and "without `extern`" in found.hint


class _Array:
    def __init__(self, address: int) -> None:
        self.address = address


def test_a_plans_own_names_stand_in_where_the_text_has_none() -> None:
    buffers = (Buffer("in", "input", np.float32, (8,)), Buffer("out", "output", np.float32, (2, 4)))
    plan = Plan(buffers, (Launch("k", (1,), (8,), ("in", "out")),))
    scene = Scene(plan, {"in": _Array(64), "out": _Array(4096)}, {"k": ("only",)})  # type: ignore[dict-item]
    place = Location("global", 36, 32, 4, 4, "write", base=4096)
    fault = KernelFault("out-of-bounds", f"invalid write: {place}", PLACE, location=place)
    assert scene.fault(0, fault).what == "invalid write: `out[9]` written, `out` has 8 elements"
    assert of_error(scene.fault(0, fault))[1].evidence == ()


def test_a_write_to_a_guard_zone_has_the_name_of_the_writing_kernel() -> None:
    buffers = (Buffer("in", "input", np.float32, (8,)), Buffer("partials0", "scratch", np.float32, (2,)))
    launches = (Launch("sums", (2,), (4,), ("in", "partials0")), Launch("sums", (1,), (4,), ("partials0", "out")))
    scene = Scene(Plan((*buffers, Buffer("out", "output", np.float32, (1,))), launches), {}, {"sums": ("x", "y")})
    assert [scene.damaged(name) for name in ("in", "partials0", "out", "another")] == ["x", "y", "y", "another"]


def test_naming_twice_changes_nothing() -> None:
    buffers = (Buffer("in", "input", np.float32, (8,)), Buffer("out", "output", np.float32, (8,)))
    scene = Scene(Plan(buffers, (Launch("k", (1,), (8,), ("in", "out")),)), {"out": _Array(4096)}, {})  # type: ignore[dict-item]
    place = Location("global", 4, 32, 4, 4, "read", base=4096)
    seen = Hazard("uninitialised", "uninitialized read", PLACE, location=place)
    fault = KernelFault("time-limit", "time limit", PLACE, hazards=(seen,))
    for _ in range(2):
        fault = scene.fault(0, fault)
    assert [hazard.what for hazard in fault.hazards] == ["uninitialized read: `out[1]` was never written"]
