"""The work that a stopwatch enqueues, and its times, without a GPU."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from fake_driver import ATTRIBUTES, Context, Driver

from pytest_gpulab.devices.cuda.faults import overtime_fault
from pytest_gpulab.devices.cuda.memory import CudaMemory
from pytest_gpulab.devices.cuda.module import CudaModule
from pytest_gpulab.devices.cuda.timing import sampler
from pytest_gpulab.devices.cuda.timing.overhead import AMONG
from pytest_gpulab.devices.cuda.timing.sampler import LEAD_MS, MAX_LEAD_MS, CudaStopwatch
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault
from pytest_gpulab.devices.stopwatch import UNINTERRUPTED_MS, Conditions, Copy, KernelLaunch

pytestmark = pytest.mark.unit


def stopwatch_that_is_late(is_late):
    """Return a stopwatch, and the lead of each attempt; says of each attempt whether the GPU waited for it."""
    watch, leads = CudaStopwatch.__new__(CudaStopwatch), []
    watch._context, watch._flush_ms, watch._lead_ms, watch._is_long = Context(), 0.001, LEAD_MS, False
    watch._readings_ms, watch._pause, watch._cycles_per_ms = set(), lambda cycles, grid, block: None, 1000

    def timed(launches, kernel):
        leads.append(watch._lead_ms)
        return 0.5, not is_late(len(leads), leads[-1])

    watch._timed = timed
    return watch, leads


@pytest.fixture
def done(monkeypatch):
    """The work that a stopwatch enqueues before the launches."""
    done = []
    monkeypatch.setattr(sampler, "copy_within", lambda copies: done.append(("copy", *copies)) if copies else None)
    return done


def watch_that_tells(done):
    watch, _ = stopwatch_that_is_late(lambda nth, lead_ms: False)
    watch._flush = lambda: done.append("flush")
    watch._touch = lambda address, nbytes, grid, block: done.append(("touch", int(address), int(nbytes)))
    watch._pause = lambda cycles, grid, block: done.append(("pause", int(cycles)))
    watch._block_each = (4, 1)
    return watch


def copy_to(address, nbytes):
    target = object.__new__(CudaMemory)
    target.address, target.shape, target.dtype = address, (nbytes,), np.dtype(np.uint8)
    return Copy(target, target)


def test_a_batch_waits_a_little_after_what_was_copied_and_a_cold_sample_does_not(done):
    """Right after copies kernels take longer, and behind a flush launches of a batch begin late."""
    watch, copy = watch_that_tells(done), copy_to(0x10000, 32)
    watch._sample([lambda: None], "f", partial(watch._warm, copies=[copy]))
    assert done == [("copy", copy), ("touch", 0x10000, 32), ("pause", 1000 * sampler.PAUSE_MS)]
    done.clear()
    watch._sample([lambda: None], "f", partial(watch._cool, copies=[copy]))
    assert done == [("copy", copy), *["flush"] * round(2 * LEAD_MS / watch._flush_ms)]


def test_the_gpu_pauses_until_all_of_a_long_batch_is_enqueued(done):
    watch = watch_that_tells(done)
    watch._sample([lambda: None] * 99, "f", watch._warm)
    assert done == [("pause", 1000 * 100 * LEAD_MS)]


def test_each_page_of_a_batchs_arrays_is_looked_into(done):
    """From its beginning on, each page: an array may reach a few bytes into its last one."""
    watch = watch_that_tells(done)
    watch._warm(0.0, [copy_to(0x1FF00, 0x10200)])
    assert done[1] == ("touch", 0x10000, 0x20100)


def test_one_late_start_does_not_lengthen_the_lead_forever():
    """Others wait for the GPU while it pauses for nothing."""
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: nth == 3)
    for _ in range(40):
        watch._sample([lambda: None], "f", watch._warm)
    assert leads[:4] == [LEAD_MS, LEAD_MS, LEAD_MS, 2 * LEAD_MS] and leads[-1] == LEAD_MS
    assert leads[3:] == sorted(leads[3:], reverse=True)


def test_frequent_late_starts_lengthen_the_lead_most_of_the_time():
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: lead_ms < 2.5 * LEAD_MS)
    for _ in range(100):
        watch._sample([lambda: None], "f", watch._warm)
    assert max(leads) < 5 * LEAD_MS and 100 < len(leads) < 110


def test_a_sample_is_taken_however_late_python_is():
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: True)
    assert watch._sample([lambda: None], "f", watch._warm) == 0.5
    assert leads[-1] == MAX_LEAD_MS


@pytest.mark.parametrize("begin_ms", [0.25 * quarter for quarter in range(28)])
def test_a_short_disturbance_of_a_calibration_changes_nothing(begin_ms):
    """Empty kernels seem to take as long again, now and then, for a millisecond; many in a row stand between others."""
    watch, _ = stopwatch_that_is_late(lambda nth, lead_ms: False)
    watch._empty_ms, took_ms = None, 0.0

    def timed(launches, kernel):
        nonlocal took_ms
        took_ms += 1.0 if len(launches) > 1 else 0.1
        return 0.003 + 0.002 * len(launches) + 0.005 * (begin_ms < took_ms < begin_ms + 2), True

    watch._timed = timed
    watch.calibrate()
    assert watch.overhead_ms(launches=1) == pytest.approx(0.003)


def test_a_brief_calibration_learns_on_about_single_kernels():
    watch, _ = stopwatch_that_is_late(lambda nth, lead_ms: False)
    watch._empty_ms, launched = None, []
    watch._timed = lambda launches, kernel: launched.append(len(launches)) or (0.003, True)
    watch.calibrate()
    before = watch._overhead
    among, alone = launched.count(AMONG), launched.count(1)
    watch.calibrate(briefly=True)
    assert watch._overhead is before and launched.count(AMONG) == among and 0 < launched.count(1) - alone < alone
    watch.calibrate()
    assert watch._overhead is not before


def test_the_clocks_tick_is_the_least_by_which_readings_differ():
    """Half a microsecond, as CUDA documents it, before two of them do."""
    watch, _ = stopwatch_that_is_late(lambda nth, lead_ms: False)
    watch._readings_ms, readings = set(), iter([0.004, 0.004, 0.008, 0.001, 0.0085])
    assert watch.tick_ms == sampler.TICK_MS == 0.0005
    watch._timed = lambda launches, kernel: (next(readings), True)
    ticks_ms = []
    for _ in range(5):
        watch._sample([lambda: None], "f", watch._warm)
        ticks_ms.append(watch.tick_ms)
    assert ticks_ms == pytest.approx([0.0005, 0.0005, 0.004, 0.003, 0.0005])


def watch_at(mhz, seen_ms=0.0, pauses_ms=None):
    """Return a stopwatch on a GPU with such a clock, rated at 1980 MHz, and how often it looks for others each time.

    `pauses_ms`: what its pauses take instead, by their cycles; those of a list one after the other.
    """
    watch, enqueued, looked = stopwatch_that_is_late(lambda nth, lead_ms: False)[0], [], []
    watch._cycles_per_ms = 1_980_000
    watch._pause = lambda cycles, grid, block: enqueued.append(int(cycles))

    def timed(launches, kernel):
        for launch in launches:
            launch()
        took_ms = 0.0015 + enqueued[-1] / (1000 * mhz)
        told_ms = (pauses_ms or {}).get(enqueued[-1], took_ms)
        return (told_ms.pop(0) if told_ms else took_ms) if isinstance(told_ms, list) else told_ms, True

    watch._timed = timed
    watch._nvml = SimpleNamespace(read=lambda: Conditions(1980, 1980))
    watch._interruptions = SimpleNamespace(longest_ms=lambda measurements: looked.append(measurements) or seen_ms)
    watch.begin()
    return watch, looked


@pytest.mark.parametrize(("mhz", "speed"), [(1980, 1), (2100, 1), (1965, 0.992), (1650, 0.833), (345, 0.174)])
def test_the_clock_is_measured_because_nvmls_lags_behind(mhz, speed):
    """A GPU may be faster than it is rated, too."""
    watch, _ = watch_at(mhz)
    assert watch.conditions() == replace(Conditions(1980, 1980), speed=pytest.approx(speed, abs=0.001))


@pytest.mark.parametrize("later_ms", [0.2, 0.1, 5.0])
def test_a_clock_with_a_disturbed_measurement_counts_as_slow(later_ms):
    short, long = sampler.SPEED_CYCLES
    watch, looked = watch_at(1980, 2.4, {short: 0.2, long: later_ms})
    found = watch.conditions()
    assert 0 <= found.speed < 0.1 and found.interruption_ms == 2.4 and looked


@pytest.mark.parametrize("mhz", [1980, 1650])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("spoilt", [1, 2])
def test_the_clock_is_measured_again_where_others_may_have_spoilt_it(mhz, which, spoilt):
    """They make a pause longer, the short one, which seems to be a fast clock, or the long one."""
    watch, _ = watch_at(mhz, 2.4, {sampler.SPEED_CYCLES[which]: [2.5] * spoilt})
    assert watch.conditions().speed == pytest.approx(mhz / 1980, abs=0.001)


def test_a_full_clock_is_measured_once():
    watch, _ = watch_at(1980)
    measure, measured = watch._sample, []
    watch._sample = lambda *args: measured.append(args) or measure(*args)
    assert watch.conditions().speed == 1 and len(measured) == 2


def test_a_gpu_with_an_unknown_clock_has_its_full_speed():
    watch, looked = watch_at(1980)
    watch._cycles_per_ms = 0
    assert watch.conditions().speed == 1 and not looked


@pytest.mark.parametrize("sample", ["cold_ms", "batch_ms"])
@pytest.mark.parametrize("long_ms", [0.9 * UNINTERRUPTED_MS, 1.1 * UNINTERRUPTED_MS])
def test_samples_are_long_where_a_kernel_is_and_not_where_a_pause_is_interrupted(sample, long_ms):
    module, (watch, _) = object.__new__(CudaModule), watch_at(1980)
    module.prepared = lambda call: lambda: None
    watch._flush = lambda: None
    watch._timed = lambda launches, kernel: (long_ms if kernel == "f" else 5.0, True)
    watch.conditions()
    assert not watch._is_long
    getattr(watch, sample)(module, [KernelLaunch("f", (1,), (1,), ())])
    assert watch._is_long == (long_ms > UNINTERRUPTED_MS)


def test_others_are_looked_for_where_they_matter():
    """That is where the clock is slow, for longer the first time, and where samples are long."""
    watch, looked = watch_at(1980, 0.3)
    assert watch.conditions().interruption_ms == 0 and looked == []
    watch._is_long = True
    assert watch.conditions().interruption_ms == 0.3 and looked == [1]
    slow, looked = watch_at(1900, 0.3)
    assert [slow.conditions().interruption_ms for _ in range(3)] == [0.3] * 3
    slow.begin()
    slow.conditions()
    assert looked == [sampler.MEASUREMENTS_IF_SLOW, 1, 1, sampler.MEASUREMENTS_IF_SLOW]


@pytest.mark.parametrize("asked", ["begin", "conditions", "calibrate"])
def test_a_submission_does_not_answer_for_the_graders_own_kernels(asked):
    """Beside many others that never end they may not come to their end in time."""
    watch, _ = watch_at(1980)
    watch._flush_ms, watch._flush, watch._empty_ms = None, lambda: None, None

    def timed(launches, kernel):
        raise overtime_fault(kernel, 1.0)

    watch._timed = timed
    with pytest.raises(DeviceUnavailable, match=r"^the grader's own kernels fail on the GPU, or are never scheduled"):
        getattr(watch, asked)()


def test_a_submission_answers_for_its_kernels():
    module, (watch, _) = object.__new__(CudaModule), watch_at(1980)
    module.prepared = lambda call: lambda: None
    watch._timed = lambda launches, kernel: (_ for _ in ()).throw(overtime_fault(kernel, 1.0))
    with pytest.raises(KernelFault, match=r"^f: the kernel had not ended after 1 s"):
        watch.batch_ms(module, [KernelLaunch("f", (1,), (1,), ())])


class Fitting(Driver):
    """A driver with enough memory that reports the given properties of a GPU."""

    device_attribute = SimpleNamespace(**{name: name for name in ATTRIBUTES})
    Event = SimpleNamespace

    def module_from_buffer(self, _):
        return SimpleNamespace(get_function=lambda name: name)


def stopwatch_on(attributes, name="NVIDIA H200"):
    context = Context()
    context.driver, context.users = Fitting(), set()
    context.gpu = SimpleNamespace(
        get_attribute=attributes.__getitem__, compute_capability=lambda: (9, 0), name=lambda: name
    )
    return CudaStopwatch(context, None)


@pytest.mark.parametrize(("l2_bytes", "flushed_bytes"), [(50 << 20, 100 << 20), (4 << 20, 64 << 20), (0, 64 << 20)])
def test_a_flush_takes_longer_than_to_enqueue_it_however_small_the_cache(l2_bytes, flushed_bytes):
    watch = stopwatch_on(ATTRIBUTES | {"L2_CACHE_SIZE": l2_bytes})
    assert int(watch._vectors) * 16 == flushed_bytes


@pytest.mark.parametrize(
    ("name", "empty_ms"), [("NVIDIA H200", 1.32e-3), ("NVIDIA H100 80GB HBM3", 2.02e-3), ("NVIDIA H100 PCIe", None)]
)
def test_an_empty_kernels_time_is_known_for_the_gpus_on_which_it_was_measured(name, empty_ms):
    assert stopwatch_on(ATTRIBUTES, name)._empty_ms == empty_ms
