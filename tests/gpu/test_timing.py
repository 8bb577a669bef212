"""Timing on a real GPU: samples, and grading by them."""

import time

import numpy as np
import pytest
from timed_kernels import ROOT, SOURCE, batched, cold, median_ms, speedups, waiting, warmed_up

from pytest_gpulab.devices.protocol import LaunchError
from pytest_gpulab.devices.stopwatch import Copy, KernelLaunch, TimingDevice

pytestmark = pytest.mark.gpu
FLUSHED_SAMPLES = 100  # medians of 25 differ by 2 % now and then, whatever is flushed (H200)


def chase(device, links):
    """A thread that follows a chain through one element of each 128 bytes, which waits for each in turn."""
    order = np.random.default_rng(1).permutation(links)
    chain = np.zeros(32 * links, np.uint32)
    chain[32 * order] = 32 * np.roll(order, -1)
    arrays = device.array(chain), device.array(np.zeros_like(chain)), device.array(np.zeros(1, np.uint32))
    call = KernelLaunch("chase", (1,), (1,), (*arrays[1:], np.uint32(links)))
    return call, Copy(arrays[0], arrays[1])


def triad(device, n):
    a, b, c = (device.array(np.ones(n, np.float32)) for _ in range(3))
    return KernelLaunch("triad", (1056,), (256,), (a, b, c, np.uint32(n)))


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


def alone_and_among_ms(watch, module, timed):
    """Time a kernel of 6 us by itself and among others."""
    warmed_up(watch, module)
    call = waiting(10_000)
    alone_ms = median_ms(lambda: timed(watch, module, [call]))
    return alone_ms, median_ms(lambda: batched(watch, module, [call] * 20)) / 20


@pytest.mark.parametrize("timed", [cold, batched], ids=["cold", "warm"])
def test_a_launch_takes_as_long_by_itself_as_among_others(device, module, timed):
    """In few places of kernels a launch begins late, so there are three."""
    modules = module, device.compile(SOURCE), device.compile(SOURCE)
    with device.stopwatch() as watch:
        places = [alone_and_among_ms(watch, placed, timed) for placed in modules]
    alone_ms, among_ms = np.array(places).min(axis=0)
    assert alone_ms == pytest.approx(among_ms, rel=0.05), places


def test_the_launch_overhead_is_not_counted(device, module):
    with device.stopwatch() as watch:
        warmed_up(watch, module)
        assert median_ms(lambda: cold(watch, module, [KernelLaunch("nothing", (1,), (32,), ())])) < 0.003


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
    nothing = KernelLaunch("nothing", (1,), (32,), ())
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


def test_waiting_for_the_gpu_uses_no_cpu_time(device, module):
    memory = device.array(np.zeros(4, np.float32))
    with device._gpu.context.at_work():
        start = module.prepared(waiting(1_000_000_000))
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        start()  # before that call ends, the kernel may have been running for long
        memory.get()
    elapsed_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    assert elapsed_s > 0.3 and cpu_s < elapsed_s / 4, (elapsed_s, cpu_s)


def test_a_call_that_does_not_fit_is_refused(device, module):
    with device.stopwatch() as watch, pytest.raises(LaunchError, match="has 1 parameter; the launch passes 0"):
        cold(watch, module, [KernelLaunch("wait", (1,), (1,), ())])


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
