"""Timing on a real GPU: samples, and grading by them."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pynvml
import pytest

from pytest_gpulab.devices.protocol import LaunchError
from pytest_gpulab.devices.stopwatch import Call, Copy, TimingDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.statistics import Ratio, allowing_for

pytestmark = pytest.mark.gpu
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


@pytest.fixture(scope="module")
def module(opened_device):
    return opened_device.compile(SOURCE)


def waiting(cycles):
    return Call("wait", (1,), (1,), (np.uint64(cycles),))


def chase(device, links):
    """A thread that follows a chain through one element of each 128 bytes, which waits for each in turn."""
    order = np.random.default_rng(1).permutation(links)
    chain = np.zeros(32 * links, np.uint32)
    chain[32 * order] = 32 * np.roll(order, -1)
    arrays = device.array(chain), device.array(np.zeros_like(chain)), device.array(np.zeros(1, np.uint32))
    call = Call("chase", (1,), (1,), (*arrays[1:], np.uint32(links)))
    return call, Copy(arrays[0], arrays[1])


def triad(device, n):
    a, b, c = (device.array(np.ones(n, np.float32)) for _ in range(3))
    return Call("triad", (1056,), (256,), (a, b, c, np.uint32(n)))


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


def test_the_device_can_time(device):
    assert isinstance(device, TimingDevice)
    with device.stopwatch() as watch:
        assert watch.l2_bytes > 2**20 and watch.peak_bandwidth_gb_s > 100
        assert watch.conditions().sm_clock_mhz > 0


def test_the_clock_that_is_measured_is_nvmls_once_that_is_steady(device, module):
    rated_mhz = device._gpu.gpu.get_attribute(device._gpu.driver.device_attribute.CLOCK_RATE) / 1000
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        looks = [watch.conditions() for _ in range(25)]
    by_nvml = np.median([min(look.sm_clock_mhz / rated_mhz, 1) for look in looks])
    assert np.median([look.speed for look in looks]) == pytest.approx(by_nvml, rel=0.01)


def test_a_kernel_takes_as_long_as_it_waits(device, module):
    with device.stopwatch() as watch:
        short_ms = median_ms(lambda: cold(watch, module, [waiting(20_000)]))
        long_ms = median_ms(lambda: cold(watch, module, [waiting(220_000)]))
        clock_mhz = watch.conditions().sm_clock_mhz
    assert long_ms - short_ms == pytest.approx(200_000 / clock_mhz / 1e3, rel=0.05)


def short_kernel_ms(watch, module):
    """Time a kernel of 6 us by itself, among others, and with cold caches."""
    warmed_up(watch, module)
    call = waiting(10_000)
    alone_ms = median_ms(lambda: batched(watch, module, [call]))
    among_ms = median_ms(lambda: batched(watch, module, [call] * 20)) / 20
    return alone_ms, among_ms, median_ms(lambda: cold(watch, module, [call]))


def test_what_surrounds_a_short_kernel_is_not_counted(device, module):
    """One launch takes as long by itself as among others; with cold caches it begins later.

    By how much depends on where the kernel lies. Nsight Compute counts it, too: 6.3 us with warm caches, 6.4 to 7.4
    with cold ones (H200). In few places a launch begins late with warm ones as well: so there are three.
    """
    with device.stopwatch() as watch:
        places = [short_kernel_ms(watch, placed) for placed in (module, device.compile(SOURCE), device.compile(SOURCE))]
        nothing_ms = median_ms(lambda: cold(watch, module, [Call("nothing", (1,), (32,), ())]))
    alone_ms, among_ms, cold_ms = np.array(places).T
    assert min(alone_ms) == pytest.approx(min(among_ms), rel=0.05)
    assert all(cold_ms > 0.95 * among_ms) and all(cold_ms < among_ms + 0.0015), places
    assert nothing_ms < 0.003


def test_calibrating_again_changes_no_time(device, module):
    times = []
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        for _ in range(40):
            watch.calibrate()
            times.append(median_ms(lambda: cold(watch, module, [waiting(20_000)])))
    assert max(times) - min(times) < 0.0006


def test_cold_caches_hold_nothing_and_warm_ones_hold_what_was_copied(device, module):
    call, copy = chase(device, 2**12)
    with device.stopwatch() as watch:
        cold_ms = min(cold(watch, module, [call], [copy]) for _ in range(9))
        warm_ms = min(batched(watch, module, [call], [copy]) for _ in range(9))
    assert warm_ms < 0.7 * cold_ms  # what comes from memory takes two to three times as long as from the cache


@pytest.mark.parametrize("elements", [2**22, 2**23, 2**24])
def test_one_flush_leaves_caches_as_cold_as_many(device, module, monkeypatch, elements):
    """Inputs of about the cache's size, which were copied just before: a good part of them may be left there."""
    call = triad(device, elements)
    copies = [Copy(device.array(np.ones(elements, np.float32)), target) for target in call.args[:2]]
    times = {share: [] for share in (4, 1, 1 / 20)}  # of the flushes that there would be
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        monkeypatch.setattr(watch, "_lead_ms", watch._lead_ms)  # longer after a sample with a gap
        flush_ms = watch._flush_ms
        for share in FLUSHED_SAMPLES * list(times):  # in turn, so that what changes meanwhile changes all of them
            monkeypatch.setattr(watch, "_flush_ms", flush_ms / share)
            times[share].append(cold(watch, module, [call], copies))
    medians_ms = {share: float(np.median(samples_ms)) for share, samples_ms in times.items()}
    assert max(medians_ms.values()) < 1.02 * min(medians_ms.values()), medians_ms


def test_a_stretch_is_copied_alone(device, module):
    zeros, ones = (device.array(np.full((4, 8), value, np.float32)) for value in (0, 1))
    nothing = Call("nothing", (1,), (32,), ())
    with device.stopwatch() as watch:
        cold(watch, module, [nothing], [Copy(ones, zeros, slice(6, 11))])
        assert np.flatnonzero(zeros.get()).tolist() == [6, 7, 8, 9, 10]
        batched(watch, module, [nothing], [Copy(ones, zeros)])
    assert zeros.get().all()


def test_a_large_kernel_reaches_a_plausible_bandwidth(device, module):
    call = triad(device, 2**25)
    with device.stopwatch() as watch:
        elapsed_ms = median_ms(lambda: cold(watch, module, [call]))
        share = 3 * 4 * 2**25 / (elapsed_ms * 1e-3) / 1e9 / watch.peak_bandwidth_gb_s
    assert 0.5 < share < 1


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
    """What does not get on while others have the GPU, whose clock does."""
    return Call("add", (1,), (1,), (np.uint32(times), device.array(np.zeros(1, np.float32))))


FLUSHED_SAMPLES = 100  # medians of 25 differ by 2 % now and then, whatever is flushed (H200)
LONG = 2_000_000  # additions, which take about as long as two of a process's turns on the GPU


def undisturbed_ms(device, module, call):
    """Time it once nobody interrupts, at the end or before: other tests' kernels that never end run for seconds."""
    for _ in range(60):
        with device.stopwatch() as watch:
            warmed_up(watch, module)
            times_ms = samples_ms(lambda: cold(watch, module, [call]))
            elapsed_ms = float(np.median(times_ms))
            if 1 < elapsed_ms < 1.05 * min(times_ms) and not watch.conditions().interruption_ms:
                return elapsed_ms
        time.sleep(0.5)
    raise AssertionError("interrupted all the time")


def test_graders_do_not_interrupt_what_is_timed(device, module):
    call = adding(device, LONG)
    for _ in range(5):
        before_ms = undisturbed_ms(device, module, call)
        with other("grader") as grader, grader:
            beside_ms = undisturbed_ms(device, module, call)
        alone_ms = pytest.approx(undisturbed_ms(device, module, call), rel=0.01)
        if before_ms == alone_ms:
            break  # else something else changed meanwhile, such as the clock
    assert (before_ms, beside_ms) == (alone_ms, alone_ms)


def test_it_is_seen_that_strangers_interrupt_what_is_timed(device, module):
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


def test_each_look_sees_a_stranger_that_is_always_at_work(device, module):
    call = adding(device, LONG)
    with other("hanging") as stranger, device.stopwatch() as watch, stranger:
        cold(watch, module, [call])
        seen_ms = looks_ms(watch)
    assert [number for number, ms in enumerate(seen_ms) if not ms] == []


def seen_in_silence_ms(device, module):
    """Look in silence, beside a grader whose kernel hangs; return what was seen, and how long silence took (s)."""
    call = adding(device, LONG)
    for _ in range(5):
        with other("hanging grader") as grader, grader:
            time.sleep(1)  # by then it has given way
            begin_s = time.monotonic()
            with device.stopwatch(in_silence=True) as watch:
                waited_s = time.monotonic() - begin_s
                cold(watch, module, [call])
                if device._gpu.turns._outside.is_held:  # else other tests' kernels hung as well, one after the other
                    return looks_ms(watch), waited_s
    raise AssertionError("other tests' kernels hang all the time")


def test_in_silence_a_graders_kernel_that_hangs_is_waited_for(device, module):
    seen_ms, waited_s = seen_in_silence_ms(device, module)
    assert waited_s > 1
    assert [number for number, ms in enumerate(seen_ms) if ms] == [], (waited_s, users())


def test_what_is_short_is_not_interrupted(device, module):
    call = adding(device, LONG // 10)
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        alone_ms = median_ms(lambda: cold(watch, module, [call]))
    with other("stranger") as stranger, device.stopwatch() as watch, stranger:
        assert median_ms(lambda: cold(watch, module, [call])) == pytest.approx(alone_ms, rel=0.02)


def test_who_waits_for_the_gpu_keeps_no_processor_core_busy(device, module):
    memory = device.array(np.zeros(4, np.float32))
    with device._gpu.context.at_work():
        start = module.prepared(waiting(1_000_000_000))
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        start()  # before that call ends, the kernel may have been running for long
        memory.get()
    elapsed_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    assert elapsed_s > 0.3 and cpu_s < elapsed_s / 4, (elapsed_s, cpu_s)


def test_a_call_that_does_not_fit_is_refused(device, module):
    with device.stopwatch() as watch, pytest.raises(LaunchError, match="takes 1 parameters but is given 0"):
        cold(watch, module, [Call("wait", (1,), (1,), ())])


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


def speedups(device, submission):
    catalogue = Catalogue(ROOT / "exercises")
    loaded = catalogue.load(catalogue.exercise_of(ROOT / submission))
    grader = Grader(loaded, ROOT / submission, device, seed=1)
    return [grader.run(check) for check in checks_of(loaded.exercise) if check.kind == "speedup"]


@pytest.mark.parametrize(
    "submission",
    [
        "solutions/reduction/10_shuffle_unroll8.cu",
        "solutions/scan/07_single_pass_packed.cu",
        "solutions/divergence/02_eight_way_by_warp.cu",
        "solutions/constant_memory/01_constant.cu",
    ],
)
def test_the_best_solution_reaches_every_tier(device, submission):
    results = speedups(device, submission)
    assert {result.verdict for result in results} == {"passed"}, results
    for result in results:
        assert result.measurement.low <= result.measurement.speedup <= result.measurement.high


def test_the_naive_kernel_is_no_faster_than_itself(device, tmp_path):
    copy = tmp_path / "reduction.cu"
    copy.write_text((ROOT / "exercises/reduction/naive.cu").read_text())
    for result in speedups(device, copy):
        assert result.verdict in ("failed", "missed")
        assert 0.98 < result.measurement.low <= result.measurement.high < 1.02


def test_who_hangs_beside_and_is_stopped_costs_nobody_a_verdict(device):
    with other("hanging") as stranger, stranger:
        threading.Timer(5, stranger.process.kill).start()
        results = speedups(device, "solutions/divergence/03_coalesced_by_tile.cu")
    assert {result.verdict for result in results} == {"passed"}, results
