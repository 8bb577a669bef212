"""Kernels that are timed on a real GPU, and how: shared by the tests of timing."""

from pathlib import Path

import numpy as np

from pytest_gpulab.devices.stopwatch import KernelLaunch
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader

ROOT = Path(__file__).parents[2]

SOURCE = """
__global__ void nothing() {}
__global__ void wait(unsigned long long cycles) {
    unsigned long long begin = clock64();
    while (clock64() - begin < cycles) {}
}
__global__ void chase(const unsigned *chain, unsigned *out, unsigned links) {
    unsigned at = 0;
    for (unsigned link = 0; link < links; ++link) at = chain[at];
    *out = at;
}
__global__ void add(unsigned times, float *out) {
    float sum = 1;
    for (unsigned i = 0; i < times; ++i) sum = sum * 0.5f + 1;
    *out = sum;
}
__global__ void triad(const float *a, const float *b, float *c, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + 2 * b[i];
}
"""


def waiting(cycles):
    return KernelLaunch("wait", (1,), (1,), (np.uint64(cycles),))


def samples_ms(sample):
    """Sample so often that it takes longer than what disturbs all samples of a millisecond or two, now and then."""
    return [sample() for _ in range(49)]


def median_ms(sample):
    return float(np.median(samples_ms(sample)))


def cold(watch, module, calls, copies=()):
    return watch.cold_ms(module, calls, copies) - watch.overhead_ms(len(calls))


def batched(watch, module, calls, copies=()):
    return watch.batch_ms(module, calls, copies) - watch.overhead_ms(len(calls))


def warmed_up(watch, module):
    """Let the clock go up, as a race does, and calibrate."""
    for _ in range(100):
        watch.cold_ms(module, [waiting(200_000)])
    watch.calibrate()


def speedups(device, submission):
    catalogue = Catalogue(ROOT / "exercises")
    loaded = catalogue.load(catalogue.exercise_of(ROOT / submission))
    grader = Grader(loaded, ROOT / submission, device, seed=1)
    return [grader.run(check) for check in checks_of(loaded.exercise) if check.kind == "speedup"]
