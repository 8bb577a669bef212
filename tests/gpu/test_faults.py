"""Kernels that end abnormally. Each breaks its process's context for good, so each runs in a process of its own."""

import os
import subprocess
import sys

import pytest

from pytest_gpulab.devices.system.processes import LOCKS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]

PROGRAM = """
import numpy as np
from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault

device = CudaDevice(launch_limit_s=1.0)
x = device.array(np.zeros(64, np.int32))
module = device.compile("#include <cassert>\\n__global__ void k(int *x) { %s }")
try:
    module.launch("k", (1,), (32,), (x,))
except KernelFault as fault:
    print(fault.code, fault, sep="|", flush=True)
try:
    x.get()
except DeviceUnavailable as unusable:
    print(unusable, flush=True)
x.free()
device.close()
"""

FAULTS = {
    "*(int *)16 = 1;": "out-of-bounds|k: a thread accessed memory that belongs to no array",
    "x[1 << 30] = 1;": "out-of-bounds|k: a thread accessed memory that belongs to no array",
    "*(int *)((char *)x + 2) = 1;": "misaligned|k: a thread accessed memory at a misaligned address",
    "assert(threadIdx.x < 16);": "assert|k: an assert() in the kernel failed",
    "if (threadIdx.x == 3) __trap();": "device-fault|k: the GPU stopped the kernel",
    "while (*(volatile int *)x == 0) {}": "endless-loop|k: the kernel had not ended after 1 s",
}


def run(body, program=PROGRAM, **variables):
    command, environment = [sys.executable, "-c", program % body], os.environ | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("body", "expected"), FAULTS.items())
def test_a_fault_is_named_and_the_device_says_that_it_is_broken(body, expected):
    ended = run(body)
    fault, unusable = ended.stdout.splitlines()
    assert fault.startswith(expected)
    what = fault.partition("|")[2]
    assert unusable == f"the GPU cannot be used any more in this process, because of an earlier launch: {what}"
    assert ended.returncode == 0, ended.stderr
    assert "PyCUDA" not in ended.stderr


NOTICED = {
    "waited for": "start(); time.sleep(0.5); context.wait('k')",
    "started again": "start(); time.sleep(0.5); start()",
    "timed to its end": "watch._timed([start, lambda: time.sleep(0.5)], 'k')",
}


@pytest.mark.parametrize("when", NOTICED)
def test_a_fault_is_named_though_it_happened_before_the_kernel_is(when):
    program = PROGRAM.replace(
        "import numpy", "import time\nfrom pytest_gpulab.devices.stopwatch import KernelLaunch\nimport numpy"
    )
    launch = 'module.launch("k", (1,), (32,), (x,))'
    timed = f"with device.stopwatch() as watch, context.current(): {NOTICED[when]}"
    prepared = 'start, context = module.prepared(KernelLaunch("k", (1,), (32,), (x,))), device._gpu.context'
    ended = run("*(int *)16 = 1;", program.replace(launch, f"{prepared}\n    {timed}"))
    assert ended.stdout.startswith(FAULTS["*(int *)16 = 1;"]), ended
    assert ended.returncode == 0 and "PyCUDA" not in ended.stderr


def test_ctrl_c_ends_a_launch_that_does_not_end_itself(tmp_path):
    interrupt_soon = "import signal, threading\nthreading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()\n"
    program = PROGRAM.replace("launch_limit_s=1.0", "launch_limit_s=50.0").replace(
        "try:\n", interrupt_soon + "try:\n", 1
    )
    program = program.replace("except KernelFault as fault", "except KeyboardInterrupt as fault")
    program = program.replace("fault.code, fault", "'interrupted'")
    alone = {LOCKS: str(tmp_path)}  # Ctrl-C would come while it waits for another test's process that times
    ended = run("while (*(volatile int *)x == 0) {}", program, **alone)
    interrupted, unusable = ended.stdout.splitlines()
    assert interrupted == "interrupted"
    assert unusable.endswith("because of an earlier launch: k: interrupted while the kernel was running")
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_kernel_that_ends_leaves_the_device_usable():
    ended = run("x[threadIdx.x] = 1;")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)


def test_a_device_that_is_never_closed_ends_quietly():
    ended = run("x[threadIdx.x] = 1;", PROGRAM.replace("device.close()", "").replace("x.free()", ""))
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
