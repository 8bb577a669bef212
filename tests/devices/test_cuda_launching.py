"""Loading and launching without a GPU: whose fault it is when the driver refuses, and what it says of it."""

import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from fake_driver import Context, Driver

from pytest_gpulab.devices.cuda import module as module_module
from pytest_gpulab.devices.cuda import timing, turns
from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.cubin import CubinNames
from pytest_gpulab.devices.cuda.faults import DriverRefusal
from pytest_gpulab.devices.cuda.memory import CudaMemory
from pytest_gpulab.devices.cuda.module import CudaModule
from pytest_gpulab.devices.cuda.overhead import AMONG
from pytest_gpulab.devices.cuda.timing import LEAD_MS, MAX_LEAD_MS, CudaStopwatch
from pytest_gpulab.devices.cuda.turns import Turns
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, KernelResources, LaunchError
from pytest_gpulab.devices.stopwatch import Call, Conditions, Copy

GIB = 1 << 30
ILLEGAL = "an illegal memory access was encountered"
ATTRIBUTES = {"MULTIPROCESSOR_COUNT": 100, "MAX_THREADS_PER_MULTIPROCESSOR": 2000, "L2_CACHE_SIZE": 1 << 20}
ATTRIBUTES |= {"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 1 << 16, "MEMORY_CLOCK_RATE": 1000, "GLOBAL_MEMORY_BUS_WIDTH": 64}
ATTRIBUTES |= {"CLOCK_RATE": 1_980_000}


class Refusing(Driver):
    """A driver that has one answer to what loads and launches."""

    device_attribute = SimpleNamespace(**{name: name for name in ATTRIBUTES})
    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self, error):
        super().__init__()
        self.error = error

    def refuse(self, *_, **__):
        raise self.error

    module_from_buffer = refuse


def full_context(error):
    """A context whose GPU has 100 GiB."""
    context = Context()
    context.driver, context.launches, context.wait = Refusing(error), 0, lambda kernel: None
    context.gpu = SimpleNamespace(
        total_memory=lambda: 100 * GIB, get_attribute=ATTRIBUTES.__getitem__, compute_capability=lambda: (9, 0)
    )
    return context


FULL = Driver.MemoryError("cuModuleLoadDataEx failed: out of memory")


@pytest.mark.parametrize(
    ("error", "gib", "raised", "told"),
    [
        (FULL, 1, DeviceUnavailable, "the GPU has no room for the compiled file: out of memory"),
        (DriverRefusal("out of memory"), 1, DeviceUnavailable, "the GPU has no room"),
        (FULL, 46, LaunchError, "the GPU cannot load the compiled file: out of memory"),
        (
            Driver.Error("cuModuleLoadDataEx failed: device kernel image is invalid"),
            1,
            DeviceUnavailable,
            "the NVIDIA driver does not load what nvcc compiled for this GPU: device kernel image is invalid; is it as "
            "new as the CUDA toolkit",
        ),
        (
            Driver.Error("cuModuleLoadDataEx failed: unknown error"),
            1,
            DeviceUnavailable,
            "^the GPU itself failed, says the NVIDIA driver: unknown error$",
        ),
    ],
)
def test_variables_that_fit_are_not_to_blame_for_a_full_gpu(monkeypatch, error, gib, raised, told):
    """46 GiB do not: a file is loaded twice."""
    monkeypatch.setattr(module_module, "read_names", lambda cubin: CubinNames({}, {}, gib * GIB))
    with pytest.raises(raised, match=told):
        CudaModule(full_context(error), b"", "")


class Function:
    """One of PyCUDA's, that notes what it is asked and told."""

    num_regs, shared_size_bytes, const_size_bytes, max_threads_per_block = 30, 16, 0, 1024

    def __init__(self, launch, local_bytes=0):
        self.launch, self.local_size_bytes, self.told = launch, local_bytes, []

    def __getattribute__(self, name):
        if name in ("num_regs", "max_threads_per_block"):
            self.told.append(name)
        return super().__getattribute__(name)

    def __call__(self, *args, **how):
        self.launch(*args, **how)

    def set_attribute(self, attribute, value):
        self.told.append(value)


def module_with(context, function):
    """Return a module with one kernel, `f`, that takes nothing."""
    module = CudaModule.__new__(CudaModule)
    module._context, module._kernels = context, {}
    module._module = SimpleNamespace(get_function=lambda symbol: function)
    module._inspected = SimpleNamespace(parameter_bytes=lambda symbol: function.told.append(symbol) or ())
    module._names = CubinNames({"f": "_Z1fv"}, {}, 0)
    return module


def launched(context, local_bytes):
    """Launch a kernel with so large a stack for each thread."""
    module_with(context, Function(context.driver.refuse, local_bytes)).prepared(Call("f", (1,), (32,), ()))()


def test_the_driver_is_asked_about_a_kernel_once_and_told_what_changes():
    """Others wait while it is timed again and again."""
    context, launched = full_context(FULL), []
    function = Function(lambda **how: launched.append(how["shared"]))
    module = module_with(context, function)
    for shared_bytes in (0, 0, 100, 100, 0):
        module.prepared(Call("f", (1,), (32,), (), shared_bytes))()
        assert module.parameter_bytes("f") == () and module.resources("f") == KernelResources(30, 16, 0, 0)
    assert launched == [0, 0, 100, 100, 0] and context.latest == "f"
    assert function.told == ["_Z1fv", "num_regs", "max_threads_per_block", 0, 100, 0]


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "told"),
    [
        (1025, 0, r"a block of 1025 threads is too large for kernel 'f', .* at most 1024 \(30 registers a thread\)"),
        (32, (1 << 16) - 15, "kernel 'f' is given 65521 bytes of dynamic shared memory but the GPU has room for 65520"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_each_time(threads, shared_bytes, told):
    module = module_with(full_context(FULL), Function(None))
    for _ in range(2):
        with pytest.raises(LaunchError, match=told):
            module.prepared(Call("f", (1,), (threads,), (), shared_bytes))


@pytest.mark.parametrize(
    ("error", "kib", "raised", "told"),
    [
        (FULL, 1, DeviceUnavailable, "the GPU has no room for the stacks of f: out of memory"),
        (FULL, 500, LaunchError, "the GPU refuses to launch 'f' with grid .*: out of memory"),
        (Driver.Error("cuLaunchKernel failed: invalid argument"), 1, LaunchError, "refuses to launch .*: invalid arg"),
    ],
)
def test_stacks_that_fit_are_not_to_blame_for_a_full_gpu(error, kib, raised, told):
    with pytest.raises(raised, match=told):
        launched(full_context(error), kib << 10)


class Broken(Refusing):
    """A driver that says of everything what an earlier kernel did."""

    def __init__(self):
        super().__init__(Driver.Error(f"cuEventCreate failed: {ILLEGAL}"))

    Event, Context = Refusing.refuse, SimpleNamespace(pop=lambda: None)


def broken_context(tmp_path):
    context = PrimaryContext(Broken(), SimpleNamespace(get_attribute=ATTRIBUTES.__getitem__), 1.0, Turns("G", tmp_path))
    context._context = SimpleNamespace(push=lambda: None)
    return context


def test_a_kernel_that_has_failed_before_it_is_waited_for_is_found(tmp_path):
    context = broken_context(tmp_path)
    with pytest.raises(KernelFault, match="a thread accessed memory that belongs to no array") as caught:
        context.wait("f")
    assert caught.value.code == "out-of-bounds" and not context.usable
    begin_s = time.monotonic()
    with Turns("G", tmp_path).timing(in_silence=True):  # no kernel runs any more, however long this process lives
        assert time.monotonic() - begin_s < 0.5 * turns.OUTSIDE_WAIT_S


def test_a_kernel_that_never_ends_is_known_to_others_until_its_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_gpulab.devices.cuda.turns.OUTSIDE_WAIT_S", 1.0)
    monkeypatch.setattr("pytest_gpulab.devices.cuda.turns.SILENCE_WAIT_S", 0.01)
    never = SimpleNamespace(record=lambda: None, query=lambda: False)
    driver = SimpleNamespace(Event=lambda: never, Context=SimpleNamespace(pop=lambda: None), Error=Driver.Error)
    its, others = Turns("G", tmp_path), Turns("G", tmp_path)
    context = PrimaryContext(driver, None, 0.05, its)
    context._context = SimpleNamespace(push=lambda: None)
    with pytest.raises(KernelFault, match="the kernel had not ended after"), context.at_work():
        context.wait("f")
    for is_there in True, False:
        begin_s = time.monotonic()
        with others.timing(in_silence=True):
            assert (time.monotonic() - begin_s >= 1.0) == is_there
        its.close()  # as the end of its process does
    others.close()


def test_a_launch_that_is_refused_because_of_an_earlier_one_says_so(tmp_path):
    with pytest.raises(KernelFault, match="a thread accessed memory that belongs to no array"):
        launched(broken_context(tmp_path), 0)


def test_a_kernel_that_has_failed_before_the_clock_stops_is_found(tmp_path):
    watch = CudaStopwatch.__new__(CudaStopwatch)
    watch._context = broken_context(tmp_path)
    watch._start = SimpleNamespace(record=lambda: None, query=lambda: True)
    watch._end = SimpleNamespace(record=watch._context.driver.refuse)
    with pytest.raises(KernelFault, match="a thread accessed memory that belongs to no array"):
        watch._timed([lambda: None], "f")


def test_a_stopwatch_for_which_there_is_no_room_is_not_there():
    context = full_context(FULL)
    context.driver.mem_alloc = context.driver.refuse
    with pytest.raises(DeviceUnavailable, match=r"^the GPU has no room for what a stopwatch needs: out of memory$"):
        CudaStopwatch(context, None)


def test_a_stopwatch_that_the_driver_does_not_compile_is_not_there():
    context = full_context(Driver.Error("cuModuleLoadDataEx failed: PTX JIT compilation was disabled"))
    with pytest.raises(DeviceUnavailable, match=r"does not compile what it takes to time on this GPU: PTX JIT compil"):
        CudaStopwatch(context, None)


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
    """What a stopwatch gives the GPU to do before the launches."""
    done = []
    monkeypatch.setattr(timing, "copy_within", lambda copies: done.append(("copy", *copies)) if copies else None)
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
    target.address, target._shape, target._dtype = address, (nbytes,), np.dtype(np.uint8)
    return Copy(target, target)


def test_a_batch_waits_a_little_after_what_was_copied_and_a_cold_sample_does_not(done):
    """Right after copies kernels take longer, and behind a flush launches of a batch begin late."""
    watch, copy = watch_that_tells(done), copy_to(0x10000, 32)
    watch._sample([lambda: None], "f", partial(watch._warm, copies=[copy]))
    assert done == [("copy", copy), ("touch", 0x10000, 32), ("pause", 1000 * timing.PAUSE_MS)]
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


def test_who_was_late_once_has_no_longer_lead_for_good():
    """Others wait for the GPU while it pauses for nothing."""
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: nth == 3)
    for _ in range(40):
        watch._sample([lambda: None], "f", watch._warm)
    assert leads[:4] == [LEAD_MS, LEAD_MS, LEAD_MS, 2 * LEAD_MS] and leads[-1] == LEAD_MS
    assert leads[3:] == sorted(leads[3:], reverse=True)


def test_who_is_always_late_with_a_short_lead_has_a_long_one_most_of_the_time():
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: lead_ms < 2.5 * LEAD_MS)
    for _ in range(100):
        watch._sample([lambda: None], "f", watch._warm)
    assert max(leads) < 5 * LEAD_MS and 100 < len(leads) < 110


def test_a_sample_is_taken_however_late_python_is():
    watch, leads = stopwatch_that_is_late(lambda nth, lead_ms: True)
    assert watch._sample([lambda: None], "f", watch._warm) == 0.5
    assert leads[-1] == MAX_LEAD_MS


@pytest.mark.parametrize("begin_ms", [0.25 * quarter for quarter in range(28)])
def test_what_disturbs_a_stretch_of_a_calibration_changes_nothing(begin_ms):
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
    assert watch.tick_ms == timing.TICK_MS == 0.0005
    watch._timed = lambda launches, kernel: (next(readings), True)
    ticks_ms = []
    for _ in range(5):
        watch._sample([lambda: None], "f", watch._warm)
        ticks_ms.append(watch.tick_ms)
    assert ticks_ms == pytest.approx([0.0005, 0.0005, 0.004, 0.003, 0.0005])


def watch_at(mhz, seen_ms=0.0, pauses_ms=None):
    """Return a stopwatch on a GPU with such a clock, rated at 1980 MHz, and how often it looks for others each time.

    `pauses_ms`: what its pauses take instead.
    """
    watch, enqueued, looked = stopwatch_that_is_late(lambda nth, lead_ms: False)[0], [], []
    watch._cycles_per_ms = 1_980_000
    watch._pause = lambda cycles, grid, block: enqueued.append(int(cycles))

    def timed(launches, kernel):
        for launch in launches:
            launch()
        return pauses_ms[enqueued[-1]] if pauses_ms else 0.0015 + enqueued[-1] / (1000 * mhz), True

    watch._timed = timed
    watch._nvml = SimpleNamespace(read=lambda: Conditions(1980, 1980))
    watch._interruptions = SimpleNamespace(longest_ms=lambda looks: looked.append(looks) or seen_ms)
    watch.begin()
    return watch, looked


@pytest.mark.parametrize(("mhz", "speed"), [(1980, 1), (2100, 1), (1965, 0.992), (1650, 0.833), (345, 0.174)])
def test_the_clock_is_measured_because_nvmls_lags_behind(mhz, speed):
    """A GPU may be faster than it is rated, too."""
    watch, _ = watch_at(mhz)
    assert watch.conditions() == replace(Conditions(1980, 1980), speed=pytest.approx(speed, abs=0.001))


@pytest.mark.parametrize("later_ms", [0.2, 0.1, 5.0])
def test_a_clock_whose_measurement_others_spoil_is_slow(later_ms):
    short, long = timing.SPEED_CYCLES
    watch, looked = watch_at(1980, 2.4, {short: 0.2, long: later_ms})
    found = watch.conditions()
    assert 0 <= found.speed < 0.1 and found.interruption_ms == 2.4 and looked


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
    assert looked == [timing.LOOKS_IF_SLOW, 1, 1, timing.LOOKS_IF_SLOW]


class Fitting(Driver):
    """A driver that has room for all, and says of a GPU what it is told to."""

    device_attribute = Refusing.device_attribute
    Event = SimpleNamespace

    def module_from_buffer(self, _):
        return SimpleNamespace(get_function=lambda name: name)


def stopwatch_on(attributes, capability=(9, 0)):
    context = Context()
    context.driver, context.users = Fitting(), set()
    context.gpu = SimpleNamespace(get_attribute=attributes.__getitem__, compute_capability=lambda: capability)
    return CudaStopwatch(context, None)


@pytest.mark.parametrize(("l2_bytes", "flushed_bytes"), [(50 << 20, 100 << 20), (4 << 20, 64 << 20), (0, 64 << 20)])
def test_a_flush_takes_longer_than_to_enqueue_it_however_small_the_cache(l2_bytes, flushed_bytes):
    watch = stopwatch_on(ATTRIBUTES | {"L2_CACHE_SIZE": l2_bytes})
    assert int(watch._vectors) * 16 == flushed_bytes


@pytest.mark.parametrize(
    ("capability", "clock_mhz", "is_known"), [((9, 0), 1980, True), ((9, 0), 1755, False), ((8, 0), 1980, False)]
)
def test_how_long_an_empty_kernel_takes_is_known_where_it_was_measured(capability, clock_mhz, is_known):
    watch = stopwatch_on(ATTRIBUTES | {"CLOCK_RATE": 1000 * clock_mhz}, capability)
    assert (watch._empty_ms is not None) == is_known
