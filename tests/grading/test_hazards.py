"""Races and uninitialised reads in grading: their own checks, evidence, notes, hints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from block_sums import EXERCISE, TREE, changed, graded, line_of
from doubling import codes

from pytest_gpulab.devices.cuda.faults import overtime_fault
from pytest_gpulab.devices.protocol import Device, KernelFault
from pytest_gpulab.exercise import SafeCheck
from pytest_gpulab.grading.findings import IN_ONE_LINE, NO_VALUE, finding, of_error
from pytest_gpulab.grading.grade import Grade, Provenance
from pytest_gpulab.reports.terminal.reasons import reasons

pytestmark = pytest.mark.unmeasured

SAFE = (SafeCheck("memory", 2), SafeCheck("barrier", 2), SafeCheck("race", 3), SafeCheck("uninitialised", 3))
WATCHED = replace(EXERCISE, safe=SAFE, speed=(), compile_points=40)
NO_FIRST_BARRIER = changed(TREE, ": GPULAB_T(0);\n    __syncthreads();", ": GPULAB_T(0);")
NOT_ALL_WRITTEN = changed(
    TREE, "tile[threadIdx.x] = i < n ? in[i] : GPULAB_T(0);", "if (i < n) tile[threadIdx.x] = in[i];"
)
NO_LAST_SYNC = changed(TREE, "threadIdx.x + s]);\n        __syncthreads();",
                       "threadIdx.x + s]);\n        if (s > 32) __syncthreads();")  # fmt: skip
MARK = "    __shared__ int mark[2]; mark[n & 1] = n;\n    __shared__ GPULAB_T tile"
SAME_VALUE = changed(
    changed(TREE, "    __shared__ GPULAB_T tile", MARK), "tile[0];\n", "tile[0] + GPULAB_T(mark[n & 1] - int(n));\n"
)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


def test_a_clean_kernel_is_safe_in_every_way(gpu: Device, tmp_path: Path) -> None:
    assert codes(graded(tmp_path, gpu, TREE, WATCHED)) == {}


def test_a_race_has_its_line_both_parties_and_the_cases(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, NO_FIRST_BARRIER, WATCHED)
    found = results["safe[race]"].findings[0]
    assert found.code == "race" and found.where == line_of(NO_FIRST_BARRIER, "tile[threadIdx.x + s]")
    assert found.what == "Potential read-after-write (RAW) hazard on __shared__ memory in one block, no barrier between"
    who, where = found.evidence
    written = line_of(NO_FIRST_BARRIER, "i < n ?")
    assert who == f"first by block 0 thread 0, against the write of 4 bytes by block 0 thread 64 at {written}"
    assert where == "seen in correct[n=1], correct[n=block], correct[n=300]"
    assert found.hint.endswith("one of them must wait.")


def test_a_pointer_is_no_texture(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "i < n ? in[i]", "i < n ? tex1Dfetch<GPULAB_T>((cudaTextureObject_t)in, i)")
    (found,) = graded(tmp_path, gpu, source, WATCHED)["correct[n=1]"].findings
    assert (found.code, found.where) == ("texture", line_of(source, "tex1Dfetch"))
    assert found.what.startswith("Invalid texture handle: 0x") and "pointer" in found.hint


def test_a_race_explains_a_result_that_depends_on_luck(gpu: Device, tmp_path: Path) -> None:
    (found,) = graded(tmp_path, gpu, NO_FIRST_BARRIER)["correct[n=block]"].findings
    assert found.code == "not-repeatable"
    assert any(line.startswith("in the same run: ") and "RAW" in line for line in found.evidence)
    assert found.where == line_of(NO_FIRST_BARRIER, "tile[threadIdx.x + s]")


def test_a_barrier_that_threads_miss_explains_the_race_that_follows_from_it(gpu: Device, tmp_path: Path) -> None:
    missed = changed(
        TREE, "GPULAB_T(0);\n    __syncthreads();", "GPULAB_T(0);\n    if (threadIdx.x < 32) __syncthreads();"
    )
    (found,) = graded(tmp_path, gpu, missed)["correct[n=block]"].findings
    same_run = [line for line in found.evidence if line.startswith("in the same run: ")]
    assert "not all threads reach this barrier together" in same_run[0] and "RAW" in same_run[-1]
    assert "no branch or loop around it" in found.hint


def test_a_race_that_no_schedule_loses_is_one_all_the_same(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, NO_LAST_SYNC, WATCHED)
    assert codes(results) == {"safe[race]": "race"}
    (found, *_) = results["safe[race]"].findings
    assert "in one warp, no __syncwarp() between" in found.what and "need not run in lockstep" in found.hint


def test_an_uninitialised_read_fails_its_check_and_explains_wrong_results(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, NOT_ALL_WRITTEN, WATCHED)
    (found,) = results["safe[uninitialised]"].findings
    assert found.what == "Uninitialized __shared__ memory read of size 4 bytes: `tile[1]` was never written"
    assert found.where == line_of(NOT_ALL_WRITTEN, "tile[threadIdx.x + s]")
    (wrong,) = results["correct[n=300]"].findings
    assert any("in the same run: " in line and "uninitialized __shared__" in line for line in wrong.evidence)


def test_a_variable_without_a_value_is_named_beside_unwritten_shared_memory(gpu: Device, tmp_path: Path) -> None:
    store = "GPULAB_T own;\n    if (i < n) own = in[i];\n    if (i % 2 == 0) tile[threadIdx.x] = own;"
    source = changed(TREE, "tile[threadIdx.x] = i < n ? in[i] : GPULAB_T(0);", store)
    (wrong,) = graded(tmp_path, gpu, source, replace(WATCHED, safe=(), compile_points=50))["correct[n=300]"].findings
    assert any("uninitialized __shared__" in line for line in wrong.evidence)
    assert any("`own` may be read before it has a value" in line for line in wrong.evidence)
    assert wrong.hint.startswith(f"{NO_VALUE} ")


def test_poisoned_outputs_count_as_uninitialised(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "out[blockIdx.x] = weight", "out[blockIdx.x] += weight")
    (found,) = graded(tmp_path, gpu, source, WATCHED)["safe[uninitialised]"].findings
    assert found.what == "Uninitialized __global__ memory read of size 4 bytes: `out[0]` was never written"
    assert found.where == line_of(source, "out[blockIdx.x] +=") and "holds garbage before the launch" in found.hint


def test_writes_of_the_same_value_are_a_note_on_a_passed_check(gpu: Device, tmp_path: Path) -> None:
    result = graded(tmp_path, gpu, SAME_VALUE, WATCHED)["safe[race]"]
    assert (result.verdict, result.points) == ("passed", 3)
    (note,) = result.findings
    assert note.what.startswith("Harmless: potential write-after-write (WAW) hazard on __shared__ memory")
    assert note.what.endswith("but both write the same value") and note.where == line_of(SAME_VALUE, "mark[n & 1] = n")
    provenance = Provenance("", "simulated", "", "", 0, "", "", "")
    (reason,) = reasons(Grade("student", "sums", (result,), provenance), set())
    assert reason.heading() == "note on safe[race]" and reason.is_minor


@pytest.mark.parametrize(
    ("code", "what", "hint"),
    [
        ("barrier", "divergent threads in block", "same __syncthreads()"),
        ("barrier", "divergent threads in warp: the mask names", "exactly the lanes that reach it"),
        ("race", "potential hazard by different blocks", "Blocks run in no order"),
        ("race", f"potential (WAW) hazard by different blocks {IN_ONE_LINE}", "does the index contain blockIdx"),
        ("race", "hazard by different blocks, atomic within one block only", "use atomicAdd()"),
        ("race", "potential hazard in one warp", "__syncwarp()"),
        ("race", "hazard in one block, without a wait for the asynchronous copy", "Wait, then call __syncthreads()"),
        ("race", "potential hazard in one block", "one of them must wait"),
        ("race", "potential write-after-write (WAW) hazard in one block", "Should each have one of its own?"),
        ("barrier", "Divergent threads in warp: not all threads that the mask names reach it", "only some lanes"),
        ("out-of-bounds", "Invalid __shared__ atomic: `bins[-90]` changed", "A `char` from 128 on is negative"),
        ("uninitialised", "uninitialized __shared__ memory read", "shared memory"),
        ("uninitialised", "uninitialized __local__ memory read", "without `__shared__` is private to each thread"),
        ("uninitialised", "uninitialized __global__ memory read", "holds garbage before the launch"),
        ("uninitialised", "uninitialized __global__ memory read, its `a` is `b` of launch 1", "The earlier launch"),
        ("out-of-bounds", "Invalid __global__ read: `a[-1]` read", "0 - 1 wraps around"),
        ("out-of-bounds", "`tile[-128]` written first by block 0 thread 0", "0 - 1 wraps around"),
        ("out-of-bounds", "`tile[-128]` written first by block 0 thread 128", "a `signed char` ends at 127"),
        ("out-of-bounds", "__global__ `S[2]` read first by block 1 thread 2", "the thread's number in its block"),
        ("out-of-bounds", "__global__ `S[2]` read first by block 0 thread 2", "Compare the index with the length"),
        ("out-of-bounds", "__global__ `S[2]` read first by block 1 thread 23", "Compare the index with the length"),
        ("out-of-bounds", "`in[-32768]` read first by block 128 thread 0", "a `short` at 32767"),
        ("out-of-bounds", "Invalid __shared__ read: `a[9]` read", "last thread of a block"),
        ("out-of-bounds", "Invalid __local__ read of size 4", "Compare the index"),
        ("out-of-bounds", "Invalid __global__ read: `a[9]` read", "a multiple of the block size"),
        ("endless-loop", "the kernel does not end: still looping after 9 steps", "never drops below 0."),
        ("endless-loop", "the kernel had not ended after 9 s", "or a slow machine"),
        ("endless-loop", "the kernel does not end: the counter of this loop never meets its bound", "steps over it"),
        ("time-limit", "the kernel cannot end within 9 s: at least 5 iterations of this loop are left", "wraps around"),
        ("time-limit", "the kernel had not ended after 9 s", "may be finite but very long"),
        ("endless-loop", "the driver stopped the kernel because it ran too long", "or a slow machine"),
    ],
)
def test_hints_fit_what_happened(code: str, what: str, hint: str) -> None:
    assert hint in finding(code, what).hint


def test_a_time_limit_alone_does_not_call_a_loop_endless() -> None:
    stopped = of_error(overtime_fault("kernel", 9.0))[1].hint
    endless = of_error(KernelFault("endless-loop", "the kernel does not end: still looping after 9 steps"))[1].hint
    assert stopped.startswith(endless) and "only be too slow" in stopped and "slow" not in endless
