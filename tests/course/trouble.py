"""An exercise whose submissions bring down the worker process, as a tunable of theirs asks for.

What a real one does by a mistake of the compiler's or by filling the memory, the exercise's code does here at the case
`n=31`: 1 kills the process, 2 hangs, 3 hangs in every case.
"""

from __future__ import annotations

import time
from pathlib import Path

from pytest_gpulab.course.jobs import GradingSettings, Job, content_sha256
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.grade import Grade, Provenance
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

EXERCISE = """
import os, signal, time
from pathlib import Path
import numpy as np
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, Tunable

def inputs(problem, pattern, rng):
    trouble = problem.tunables["TROUBLE"]
    if problem.size == 31 or trouble == 3:
        misbehave(trouble)
    return {"in": rng.integers(-1000, 1000, problem.size, dtype=np.int32)}

def misbehave(trouble):
    if trouble == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble in (2, 3):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # nothing interrupts it
        time.sleep(1000)

def plan(problem):
    n = problem.size
    buffers = (Buffer("in", "input", np.int32, (n,)), Buffer("out", "output", np.int32, (n,)))
    return Plan(buffers, (Launch("twice", (-(-n // 64),), (64,), ("in", "out", np.int32(n))),))

exercise = Exercise(
    title="Every element times two",
    plan=plan,
    inputs=inputs,
    reference=lambda problem, inputs: Expected({"out": 2 * inputs["in"]}),
    cases=tuple(Case(f"n={n}", n, 20) for n in (1, 31, 100, 1000, 1001)),
    tunables=(Tunable("TROUBLE", range(10), default=0),),
)
"""
SOURCE = """
#include <gpulab.cuh>
GPULAB_TUNABLE(TROUBLE, %d)
__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
"""


def exercises_in(folder: Path) -> Path:
    """Write the exercise; return the folder of exercises."""
    exercise = folder / "exercises" / "twice"
    exercise.mkdir(parents=True)
    (exercise / "exercise.py").write_text(EXERCISE)
    return exercise.parent


def job(exercises: Path, source: str, student: str = "ann", timeout_s: float = 60.0) -> Job:
    """Return a job for the simulated GPU."""
    label, sha256 = f"{student}/twice.cu", content_sha256(exercises / "twice")
    settings = GradingSettings("sim", seed=7, timeout_s=timeout_s)
    return Job(label, student, "twice", "twice.cu", source.encode(), exercises, sha256, settings)


def out_of_memory(job: Job, *_: object) -> Grade:
    """Take the place of `graded` or `graded_apart` in a process that has no memory left."""
    raise MemoryError("no room for the grade of " + job.label)


def graded_nowhere(job: Job, known: DeviceInfo | None, scope: ProcessScope) -> Grade:
    """Take the place of `graded_apart`: say which GPU it would have been, once all workers had the time to start."""
    time.sleep(0.5)
    name = known.name if known else "unknown"
    return Grade(job.label, job.exercise, (), Provenance(job.settings.device, "cuda", name, "", 0, "", "", ""))
