"""Timing on a real GPU that other processes use at the same time."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pynvml
import pytest
from timed_kernels import ROOT, cold, median_ms, samples_ms, speedups, warmed_up

from pytest_gpulab.devices.stopwatch import KernelLaunch
from pytest_gpulab.grading.speed.statistics import Ratio, allowing_for

pytestmark = pytest.mark.gpu

BESIDE = """
import os, signal, sys, numpy as np, pycuda.driver as cuda
from pytest_gpulab.devices.cuda.device import CudaDevice
device = CudaDevice(launch_limit_s=3.0)
module = device.compile(
    "__global__ void nothing() {} __global__ void hang(volatile int *zero) { while (*zero == 0) {} }"
)
context = device._gpu.context
nothing, hang = (module._kernel(name).function for name in ("nothing", "hang"))
zero = device.array(np.zeros(1, np.int32))
print("is ready", flush=True)
sys.stdin.readline()
context._context.push()
if sys.argv[1] == "hanging":
    hang(np.uintp(zero.address), grid=(1, 1), block=(1, 1, 1))
print("has begun", flush=True)
while True:
    if sys.argv[1] == "hanging grader":
        try:
            module.launch("hang", (1,), (1,), (zero,))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)  # as its parent does with a grader
    elif sys.argv[1] == "grader":
        module.launch("nothing", (1,), (32,), ())
    elif sys.argv[1] == "hanging":
        cuda.Context.synchronize()
    else:
        nothing(grid=(1, 1), block=(32, 1, 1))
        cuda.Context.synchronize()
"""


class Other:
    """Another process, that launches empty kernels one after the other inside of `with`, or one that never ends.

    A stranger begins once this process is the only grader that times: else it would spoil other tests' verdicts.
    """

    def __init__(self, process):
        self.process = process

    def __enter__(self):
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "has begun\n"

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@contextmanager
def other(who):
    command, pipes = [sys.executable, "-c", BESIDE, who], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "is ready\n"
            yield Other(process)
        finally:
            process.kill()


def adding(device, times):
    """A kernel that makes no progress while other processes have the GPU, although the clock runs on."""
    return KernelLaunch("add", (1,), (1,), (np.uint32(times), device.array(np.zeros(1, np.float32))))


LONG = 2_000_000  # additions, which take about as long as two time slices on the GPU


def undisturbed_ms(device, module, call):
    """Return a time without interruptions: kernels of other tests may run for seconds after their test."""
    for _ in range(60):
        with device.stopwatch() as watch:
            warmed_up(watch, module)
            times_ms = samples_ms(lambda: cold(watch, module, [call]))
            elapsed_ms = float(np.median(times_ms))
            if 1 < elapsed_ms < 1.05 * min(times_ms) and not watch.conditions().interruption_ms:
                return elapsed_ms
        time.sleep(0.5)
    raise AssertionError("interrupted all the time")


def test_graders_do_not_interrupt_timed_kernels(device, module):
    call = adding(device, LONG)
    for _ in range(5):
        before_ms = undisturbed_ms(device, module, call)
        with other("grader") as grader, grader:
            beside_ms = undisturbed_ms(device, module, call)
        alone_ms = pytest.approx(undisturbed_ms(device, module, call), rel=0.01)
        if before_ms == alone_ms:
            break  # else something else changed meanwhile, such as the clock
    assert (before_ms, beside_ms) == (alone_ms, alone_ms)


def test_interruptions_of_timed_kernels_are_detected(device, module):
    call = adding(device, LONG)
    alone_ms = undisturbed_ms(device, module, call)
    with other("stranger") as stranger, device.stopwatch() as watch, stranger:
        beside_ms = median_ms(lambda: cold(watch, module, [call]))
        seen_ms = watch.conditions().interruption_ms
    assert beside_ms > 1.05 * alone_ms
    found = allowing_for(seen_ms, Ratio(beside_ms, beside_ms, beside_ms), beside_ms, 1.0)
    assert found.low <= 1.01 * alone_ms


def users():
    """The processes on all GPUs: while one comes or goes, most probably, the driver lets none of the others work."""
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    found = [sorted(process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)) for gpu in gpus]
    pynvml.nvmlShutdown()
    return found


def looks_ms(watch):
    """Look a hundred times while processes of other tests neither come nor go: soon they wait for this timing."""
    for _ in range(20):
        before = users()
        seen_ms = [watch.conditions().interruption_ms for _ in range(100)]
        if users() == before:
            return seen_ms
    raise AssertionError("processes come and go all the time")


def test_each_check_detects_a_busy_stranger(device, module):
    call = adding(device, LONG)
    with other("hanging") as stranger, device.stopwatch() as watch, stranger:
        cold(watch, module, [call])
        seen_ms = looks_ms(watch)
    assert [number for number, ms in enumerate(seen_ms) if not ms] == []


def seen_after_drain_ms(device, module):
    """Measure after a drain, beside a grader with a hanging kernel; return the time slices seen and the wait (s)."""
    call = adding(device, LONG)
    for _ in range(5):
        with other("hanging grader") as grader, grader:
            time.sleep(1)  # by then it has yielded the GPU
            begin_s = time.monotonic()
            with device.stopwatch(drain=True) as watch:
                waited_s = time.monotonic() - begin_s
                cold(watch, module, [call])
                if (
                    device._gpu.gpu_lock._unlocked.is_held
                ):  # else other tests' kernels hung as well, one after the other
                    return looks_ms(watch), waited_s
    raise AssertionError("other tests' kernels hang all the time")


def test_a_drain_waits_for_a_graders_hanging_kernel(device, module):
    seen_ms, waited_s = seen_after_drain_ms(device, module)
    assert waited_s > 1
    assert [number for number, ms in enumerate(seen_ms) if ms] == [], (waited_s, users())


def test_short_kernels_are_not_interrupted(device, module):
    call = adding(device, LONG // 10)
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        alone_ms = median_ms(lambda: cold(watch, module, [call]))
    with other("stranger") as stranger, device.stopwatch() as watch, stranger:
        assert median_ms(lambda: cold(watch, module, [call])) == pytest.approx(alone_ms, rel=0.02)


def test_two_processes_never_time_at_once(device):
    other = (
        "from pytest_gpulab.devices import open_device\n"
        "with open_device('cuda')[0].stopwatch(): print('in', flush=True)"
    )
    with device.stopwatch():
        waiting_process = subprocess.Popen([sys.executable, "-c", other], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting_process.wait(timeout=6)
    assert waiting_process.communicate(timeout=30)[0] == "in\n"


def test_a_hanging_neighbour_changes_no_verdict(device):
    with other("hanging") as stranger, stranger:
        threading.Timer(5, stranger.process.kill).start()
        results = speedups(device, "solutions/divergence/03_coalesced_by_tile.cu")
    assert {result.verdict for result in results} == {"passed"}, results
