"""Hostile kernels on a real GPU: each ends the process it runs in, costs the check it ends, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.isolation.remote import RemoteGrader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]

EXERCISE = """
import numpy as np
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck

def plan(problem):
    n = problem.size
    buffers = (Buffer("in", "input", np.int32, (n,)), Buffer("out", "output", np.int32, (n,)))
    return Plan(buffers, (Launch("twice", (-(-n // 32),), (32,), ("in", "out", np.int32(n))),))

exercise = Exercise(
    title="Every element times two",
    plan=plan,
    inputs=lambda problem, pattern, rng: {"in": rng.integers(1, 1000, problem.size, dtype=np.int32)},
    reference=lambda problem, inputs: Expected({"out": 2 * inputs["in"]}),
    cases=(Case("n=1", 1, 20), Case("n=31", 31, 30), Case("n=100", 100, 30)),
    safe=(SafeCheck("memory", 20),),
)
"""
KERNEL = """#include <cassert>
#include <cstdio>
__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = 2 * in[i];
    if (n == 31) {
        %s
    }
}
"""
# What the kernel does at n = 31: the code of the finding, and whether it counts as a hazard of memory as well.
DEEDS = {
    "while (*(volatile const int *)in > 0) {}": ("endless-loop", "passed"),
    "*(volatile int *)16 = 1;": ("out-of-bounds", "failed"),
    "*(volatile int *)((char *)out + 2) = 1;": ("misaligned", "failed"),
    "__trap();": ("trap", "passed"),
    'asm volatile("brkpt;");': ("breakpoint", "passed"),
    "assert(i < 7);": ("assert", "passed"),
}


@pytest.fixture
def exercise(tmp_path):
    folder = tmp_path / "exercises" / "twice"
    folder.mkdir(parents=True)
    (folder / "exercise.py").write_text(EXERCISE)
    return Catalogue(folder.parent).load("twice")


@pytest.fixture
def grade(exercise, opened_device, tmp_path):
    def grade(deed, **options):
        submission = tmp_path / "twice.cu"
        submission.write_text(KERNEL % deed)
        grade = RemoteGrader(exercise, submission, "cuda", opened_device.info, 1, **options).grade()
        return {result.name: result for result in grade.checks}

    return grade


def has_simulated_gpu():
    try:
        open_device("sim")[0].close()
    except DeviceUnavailable:
        return False
    return True


@pytest.mark.parametrize(("deed", "expected"), DEEDS.items())
def test_a_fault_costs_its_own_check_only(grade, deed, expected):
    code, memory = expected
    results = grade(deed)
    assert {name: result.verdict for name, result in results.items()} == {
        "compile": "passed",
        "correct[n=1]": "passed",
        "correct[n=31]": "failed",
        "correct[n=100]": "passed",
        "safe[memory]": memory,
    }
    (found,) = results["correct[n=31]"].findings
    # hardware does not say that it was a trap, the simulated GPU does
    assert found.code == (code if has_simulated_gpu() or code not in ("trap", "breakpoint") else "device-fault")
    if code == "assert":
        assert "Assertion `i < 7` failed" in found.evidence[0]
    if has_simulated_gpu():
        assert found.where.startswith("twice.cu:8")
        told = ("the same case on the simulated GPU: ", "on the GPU: ")  # that one where the other's word is taken
        assert any(line.startswith(told) for line in found.evidence)
    assert {result.verdict for result in grade("").values()} == {"passed"}


@pytest.mark.usefixtures("nvidias_tools")
def test_compute_sanitizer_names_the_access(grade):
    results = grade("*(volatile int *)16 = 1;", sanitize=True)
    (found,) = results["correct[n=31]"].findings
    assert found.code == "out-of-bounds"
    assert any("Invalid __global__ write of size 4 bytes" in line for line in found.evidence), found.evidence
    assert results["correct[n=100]"].verdict == "passed"


def test_variables_that_no_gpu_has_room_for_are_refused(grade, tmp_path):
    results = grade("} } __device__ char huge[1ull << 38]; __global__ void other() { { huge[threadIdx.x] = 1;")
    assert {result.verdict for result in results.values()} == {"failed"}
    (found,) = results["compile"].findings
    assert found.code in ("compile-error", "launch-error"), found
    assert {result.verdict for result in grade("").values()} == {"passed"}


def test_a_flood_of_printf_is_capped(grade):
    results = grade('for (int k = 0; k < 100000; ++k) printf("%d of many\\n", k);')
    assert {result.verdict for result in results.values()} == {"passed"}
    printed = results["correct[n=31]"].printed
    assert " of many\n" in printed and printed.endswith("more characters") and len(printed) < 5000


ASK = """
import sys
from pathlib import Path
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.isolation.remote import RemoteGrader

folder = Path(sys.argv[1])
device, _ = open_device("cuda")
info = device.info
device.close()
print("started", flush=True)
grader = RemoteGrader(Catalogue(folder / "exercises").load("twice"), folder / "twice.cu", "cuda", info, 1)
print(grader.grade().points)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_spinning_kernel_does_not_outlive_pytest(grade, exercise, tmp_path, ending):
    (tmp_path / "twice.cu").write_text(KERNEL % next(iter(DEEDS)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", ASK, str(tmp_path)]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    time.sleep(5)  # by then the kernel spins, for another five seconds
    workers = started_by(parent.pid)
    assert workers
    parent.send_signal(ending)
    _, errors = parent.communicate(timeout=20)
    assert "PyCUDA" not in errors
    end_s = time.monotonic() + 5
    while any(is_running(process) for process in workers):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert {result.verdict for result in grade("").values()} == {"passed"}


def started_by(ancestor):
    """Return all processes below one, of which some are forked by others."""
    parents = {int(path.name): parent_of(path) for path in Path("/proc").glob("[0-9]*")}
    found = [ancestor]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def parent_of(process):
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
