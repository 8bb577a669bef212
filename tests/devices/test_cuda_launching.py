"""Loading and launching without a GPU: whose fault it is when the driver refuses, and what it says of it."""

import time
from types import SimpleNamespace

import pytest
from fake_driver import ATTRIBUTES, Context, Driver
from hang_guard import HANG_S

from pytest_gpulab.devices.compiler.elf import CubinNames
from pytest_gpulab.devices.cuda import gpu_lock
from pytest_gpulab.devices.cuda import module as module_module
from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.faults import DriverRefusal
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.cuda.module import CudaModule
from pytest_gpulab.devices.cuda.timing.sampler import CudaStopwatch
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, KernelResources, LaunchError
from pytest_gpulab.devices.stopwatch import KernelLaunch

pytestmark = pytest.mark.unit

GIB = 1 << 30
ILLEGAL = "an illegal memory access was encountered"


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
        total_memory=lambda: 100 * GIB,
        get_attribute=ATTRIBUTES.__getitem__,
        compute_capability=lambda: (9, 0),
        name=lambda: "NVIDIA H200",
    )
    return context


FULL = Driver.MemoryError("cuModuleLoadDataEx failed: out of memory")


@pytest.mark.parametrize(
    ("error", "gib", "raised", "told"),
    [
        (FULL, 1, DeviceUnavailable, "not enough GPU memory for the compiled file: out of memory"),
        (DriverRefusal("out of memory"), 1, DeviceUnavailable, "not enough GPU memory"),
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
    module._symbols = dict(module._names.kernels)
    return module


def launched(context, local_bytes):
    """Launch a kernel with so large a stack for each thread."""
    module_with(context, Function(context.driver.refuse, local_bytes)).prepared(KernelLaunch("f", (1,), (32,), ()))()


def test_the_driver_is_queried_once_per_kernel_and_gets_only_changes():
    """Others wait while it is timed again and again."""
    context, launched = full_context(FULL), []
    function = Function(lambda **how: launched.append(how["shared"]))
    module = module_with(context, function)
    for shared_bytes in (0, 0, 100, 100, 0):
        module.prepared(KernelLaunch("f", (1,), (32,), (), shared_bytes))()
        assert module.parameter_bytes("f") == () and module.resources("f") == KernelResources(30, 16, 0, 0)
    assert launched == [0, 0, 100, 100, 0] and context.latest == "f"
    assert function.told == ["_Z1fv", "num_regs", "max_threads_per_block", 0, 100, 0]


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "told"),
    [
        (1025, 0, r"a block of 1025 threads is too large for kernel 'f', .* at most 1024 \(30 registers per thread\)"),
        (32, (1 << 16) - 15, "kernel 'f' requests 65521 bytes of dynamic shared memory; the GPU allows 65520"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_each_time(threads, shared_bytes, told):
    module = module_with(full_context(FULL), Function(None))
    for _ in range(2):
        with pytest.raises(LaunchError, match=told):
            module.prepared(KernelLaunch("f", (1,), (threads,), (), shared_bytes))
        with pytest.raises(LaunchError, match=told):
            module.check_launch("f", (1,), (threads,), shared_bytes)


@pytest.mark.parametrize(
    ("error", "kib", "raised", "told"),
    [
        (FULL, 1, DeviceUnavailable, "not enough GPU memory for the stacks of f: out of memory"),
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
    context = PrimaryContext(
        Broken(), SimpleNamespace(get_attribute=ATTRIBUTES.__getitem__), 1.0, GpuLock("G", tmp_path)
    )
    context._context = SimpleNamespace(push=lambda: None)
    return context


def test_a_kernel_that_has_failed_before_it_is_waited_for_is_found(tmp_path, monkeypatch):
    context = broken_context(tmp_path)
    with pytest.raises(KernelFault, match="a thread accessed memory that belongs to no array") as caught:
        context.wait("f")
    assert caught.value.code == "out-of-bounds" and not context.usable
    monkeypatch.setattr(gpu_lock, "DRAIN_WAIT_S", HANG_S)
    begin_s = time.monotonic()
    with GpuLock("G", tmp_path).exclusive(drain=True):  # no kernel runs any more, however long this process lives
        assert time.monotonic() - begin_s < 0.5 * gpu_lock.DRAIN_WAIT_S


def test_a_kernel_that_never_ends_is_known_to_others_until_its_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_gpulab.devices.cuda.gpu_lock.DRAIN_WAIT_S", 1.0)
    monkeypatch.setattr("pytest_gpulab.devices.cuda.gpu_lock.WORK_WAIT_S", 0.01)
    never = SimpleNamespace(record=lambda: None, query=lambda: False)
    driver = SimpleNamespace(Event=lambda: never, Context=SimpleNamespace(pop=lambda: None), Error=Driver.Error)
    its, others = GpuLock("G", tmp_path), GpuLock("G", tmp_path)
    context = PrimaryContext(driver, None, 0.05, its)
    context._context = SimpleNamespace(push=lambda: None)
    with pytest.raises(KernelFault, match="the kernel had not ended after"), context.at_work():
        context.wait("f")
    begin_s = time.monotonic()
    with others.exclusive(drain=True):
        assert time.monotonic() - begin_s >= 1.0
    its.close()  # as the end of its process does
    monkeypatch.setattr(gpu_lock, "DRAIN_WAIT_S", HANG_S)
    begin_s = time.monotonic()
    with others.exclusive(drain=True):
        assert time.monotonic() - begin_s < 0.5 * HANG_S
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
    with pytest.raises(DeviceUnavailable, match=r"^not enough GPU memory for the stopwatch: out of memory$"):
        CudaStopwatch(context, None)


def test_a_stopwatch_that_the_driver_does_not_compile_is_not_there():
    context = full_context(Driver.Error("cuModuleLoadDataEx failed: PTX JIT compilation was disabled"))
    with pytest.raises(DeviceUnavailable, match=r"does not compile the timing kernels for this GPU: PTX JIT compil"):
        CudaStopwatch(context, None)


class Loading(Driver):
    """A driver that counts how often a file is loaded."""

    device_attribute, function_attribute = Refusing.device_attribute, Refusing.function_attribute

    def __init__(self):
        super().__init__()
        self.loaded = []

    def module_from_buffer(self, cubin):
        def launched(*args, **how):
            """No-op."""

        numbers = {"num_regs": 8, "shared_size_bytes": 0, "local_size_bytes": 0, "const_size_bytes": 0}
        function = {"max_threads_per_block": 1024, "set_attribute": launched, **numbers}
        kernel = type("Kernel", (), {**function, "__call__": launched})
        self.loaded.append(SimpleNamespace(get_function=lambda symbol: kernel()))
        return self.loaded[-1]


@pytest.mark.parametrize(("variables", "loads"), [({"counter": "counter"}, 2), ({}, 1)])
def test_variables_are_given_their_first_contents_by_loading_the_file_again(monkeypatch, variables, loads):
    """Once for launches since the last time, and not at all where there are no variables."""
    monkeypatch.setattr(module_module, "read_names", lambda cubin: CubinNames({"k": "k"}, variables, 4))
    monkeypatch.setattr(module_module, "limits_of_current_gpu", lambda: None)
    inspected = SimpleNamespace(parameter_bytes=lambda symbol: ())
    monkeypatch.setattr(module_module, "InspectedModule", lambda cubin: inspected)
    context = full_context(None)
    context.driver = Loading()
    module = CudaModule(context, b"", "")
    module.reset_variables()
    assert len(context.driver.loaded) == 1, "nothing was launched"
    start = module.prepared(KernelLaunch("k", (1,), (1,), (), 0))
    start()
    module.reset_variables()
    module.reset_variables()
    assert len(context.driver.loaded) == loads
