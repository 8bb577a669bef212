"""Opening a GPU without one: beside nvcc, when it is first needed, and what becomes of it if it is full or gone."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from fake_driver import Driver
from hang_guard import HANG_S

from pytest_gpulab.devices.cuda import context as context_module
from pytest_gpulab.devices.cuda import device as device_module
from pytest_gpulab.devices.cuda import driver as driver_module
from pytest_gpulab.devices.cuda import gpu as gpu_module
from pytest_gpulab.devices.cuda import gpu_lock
from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.driver import primary_context
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.cuda.memory import Blocks
from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceInfo, DeviceUnavailable

pytestmark = pytest.mark.unit

NOT_FOUND, FULL = bindings.CUresult.CUDA_ERROR_INVALID_DEVICE, bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
FOUND = bindings.CUresult.CUDA_SUCCESS


@pytest.mark.parametrize(
    ("found", "made", "called"),
    [
        (FOUND, FOUND, ["flags", "retain", "PyCUDA", "release"]),
        (FOUND, FULL, ["flags", "retain", "PyCUDA"]),
        (NOT_FOUND, FULL, ["PyCUDA"]),  # such as a part of a GPU
    ],
)
def test_a_context_is_made_beside_other_threads_and_left_to_pycuda(monkeypatch, found, made, called):
    calls = []
    gpu = SimpleNamespace(pci_bus_id=lambda: "0000:65:00.0", retain_primary_context=lambda: calls.append("PyCUDA"))
    monkeypatch.setattr(bindings, "cuDeviceGetByPCIBusId", lambda address: (found, 7))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxSetFlags", lambda device, flags: calls.append("flags"))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxRetain", lambda device: (made, calls.append("retain")))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxRelease", lambda device: calls.append("release"))
    primary_context(gpu)
    assert calls == called


def test_a_driver_that_does_not_answer_is_not_waited_for(monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(driver_module, "OPEN_LIMIT_S", 0.05)
    monkeypatch.setattr(bindings, "cuDeviceGetByPCIBusId", lambda address: (FOUND, 7))
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxSetFlags", lambda device, flags: None)
    monkeypatch.setattr(bindings, "cuDevicePrimaryCtxRetain", lambda device: answers.wait(HANG_S))
    with pytest.raises(
        DeviceUnavailable, match=r"^the NVIDIA driver had not opened the GPU after 0\.05 s; try nvidia-smi"
    ):
        primary_context(SimpleNamespace(pci_bus_id=lambda: "0000:65:00.0"))
    answers.set()


def test_no_timing_runs_while_a_process_opens_the_gpu(tmp_path, monkeypatch):
    """Making a context interrupts what is timed again and again, for up to a second."""
    monkeypatch.setattr(gpu_lock, "CONTEXT_WAIT_S", 0.3)
    waited_s = []

    class Gpu:
        def retain_primary_context(self):
            begin_s = time.monotonic()
            with GpuLock("GPU-1", tmp_path).exclusive():
                waited_s.append(time.monotonic() - begin_s)
            return "made once"

    monkeypatch.setattr(context_module, "primary_context", lambda gpu: gpu.retain_primary_context())
    context = PrimaryContext(Driver(), Gpu(), 1.0, GpuLock("GPU-1", tmp_path))
    assert not waited_s
    context.make()
    assert waited_s[0] >= 0.3


KNOWN = DeviceInfo("cuda", "a GPU", "nvcc 13.0", "sm_90", estimates=False)


class Opened(SimpleNamespace):
    """The result of `load_driver`: one GPU with a function that creates its context."""

    def __init__(self, make, capability=(9, 0)):
        gpu = SimpleNamespace(
            pci_bus_id=lambda: "0000:65:00.0",
            retain_primary_context=make,
            name=lambda: "a GPU",
            compute_capability=lambda: capability,
        )
        super().__init__(Device=lambda ordinal: gpu, Error=MemoryError)
        self.Device.count = lambda: 1


class Nvcc:
    version, within = "nvcc 13.0", SimpleNamespace(words="no sandbox")

    def __init__(self):
        self.compiles, self.opened = threading.Event(), threading.Event()

    def cubin(self, *text):
        self.compiles.set()
        assert self.opened.wait(HANG_S)
        return b"cubin", ""

    def try_out(self, architecture):
        assert architecture == "sm_90"
        self.cubin()


@pytest.fixture
def opening(monkeypatch, tmp_path):
    """A device that is known, and that nvcc and the driver wait for each other on."""

    def opened(nvcc, make):
        def load_driver():
            assert nvcc.compiles.wait(HANG_S)
            return Opened(make)

        monkeypatch.setenv("GPULAB_LOCKS", str(tmp_path))
        monkeypatch.setattr(gpu_module, "load_driver", load_driver)
        monkeypatch.setattr(context_module, "primary_context", lambda gpu: gpu.retain_primary_context())
        monkeypatch.setattr(device_module, "Nvcc", lambda: nvcc)
        monkeypatch.setattr(device_module, "CudaModule", lambda *made: made)
        return device_module.CudaDevice(known=KNOWN)

    return opened


def test_a_known_gpu_is_opened_while_nvcc_is_at_work(opening):
    """Both take half a second; a process that grades needs the one as soon as the other."""
    nvcc = Nvcc()
    device = opening(nvcc, nvcc.opened.set)
    assert device.info == KNOWN and device.usable
    assert device.compile("")[1:] == (b"cubin", "")
    device.close()
    assert not device.usable


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_gpu_of_the_number_that_was_asked_for_is_opened_with_locks_of_its_own(monkeypatch, tmp_path, ordinal):
    monkeypatch.setenv("GPULAB_LOCKS", str(tmp_path))

    class Device:
        count = staticmethod(lambda: 2)

        def __init__(self, number):
            self.number = number

        def pci_bus_id(self):
            return f"0000:0{self.number}:00.0"

        def compute_capability(self):
            return 9, 0

    monkeypatch.setattr(gpu_module, "load_driver", lambda: SimpleNamespace(Device=Device, Error=MemoryError))
    opened = gpu_module.OpenGpu(ordinal, 1.0)
    assert opened.gpu.number == ordinal
    with opened.gpu_lock.shared():
        pass
    opened.gpu_lock.close()
    assert {path.stem for path in tmp_path.iterdir()} == {f"pytest-gpulab-0000-0{ordinal}-00-0"}


@pytest.fixture
def asked(opening, monkeypatch):
    """A device that is asked what it is."""
    monkeypatch.setattr(device_module, "load_driver", lambda: None)
    monkeypatch.setattr(device_module, "describe", lambda driver, gpu: ("summary", {}))

    def opened(nvcc, make, **gpu):
        opening(nvcc, make).close()
        monkeypatch.setattr(gpu_module, "load_driver", lambda: Opened(make, **gpu))
        return device_module.CudaDevice()

    return opened


def test_opening_the_gpu_tries_if_nvcc_compiles(asked):
    nvcc = Nvcc()

    def make():
        assert nvcc.compiles.wait(HANG_S)
        nvcc.opened.set()

    assert asked(nvcc, make).info.architecture == "sm_90"


def test_a_gpu_for_which_nvcc_compiles_nothing_is_not_opened(asked):
    nvcc, made, closed = Nvcc(), [], []

    def useless(architecture):
        raise DeviceUnavailable("nvcc compiles no kernel at all here: no")

    nvcc.try_out = useless
    with pytest.raises(DeviceUnavailable, match=r"^nvcc compiles no kernel at all here: no$"):
        asked(nvcc, lambda: made.append(1) or SimpleNamespace(detach=lambda: closed.append(1)))
    assert made == closed == [1]


@pytest.mark.parametrize("capability", [(6, 1), (7, 0)])
def test_a_gpu_that_is_too_old_is_refused(asked, capability):
    told = f"^the GPU a GPU is too old: compute capability {capability[0]}.{capability[1]}; pytest-gpulab requires 7.5$"
    with pytest.raises(DeviceAbsent, match=told):
        asked(None, None, capability=capability)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (12, 1)])
def test_a_gpu_that_is_not_too_old_is_opened(capability):
    gpu_module._refuse_old(SimpleNamespace(compute_capability=lambda: capability))


def test_a_known_gpu_that_has_no_room_is_not_used(opening):
    nvcc = Nvcc()

    def is_full():
        nvcc.opened.set()
        raise MemoryError("cuDevicePrimaryCtxRetain failed: out of memory")

    device = opening(nvcc, is_full)
    with pytest.raises(DeviceUnavailable, match="not enough GPU memory for another process"):
        device.compile("")
    assert not device.usable  # another process is to try again
    device.close()


def test_a_known_gpu_that_does_not_answer_is_asked_once(opening):
    nvcc, asked = Nvcc(), []

    def silent():
        nvcc.opened.set()
        asked.append(1)
        raise DeviceUnavailable("the NVIDIA driver had not opened the GPU after 30 s")

    device = opening(nvcc, silent)
    for _ in "compile", "once more":
        with pytest.raises(DeviceUnavailable, match="had not opened the GPU"):
            device.array(np.zeros(4)) if asked else device.compile("")
        assert not device.usable  # another process is to try again
    assert asked == [1]
    device.close()


def test_a_known_gpu_that_is_gone_is_missed_when_it_is_needed(opening, monkeypatch):
    nvcc = Nvcc()
    nvcc.opened.set()
    device = opening(nvcc, None)

    def nothing_there():
        raise DeviceUnavailable("no GPU can be used")

    monkeypatch.setattr(gpu_module, "load_driver", nothing_there)
    for _ in "compile", "once more":
        with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
            device.compile("")
        assert not device.usable  # another process is to try again
    device.close()


def test_a_known_gpu_that_is_not_needed_is_never_opened(opening):
    device = opening(None, None)
    device.reset()
    device.close()
    assert not device.usable
    with pytest.raises(DeviceUnavailable, match="this device was closed"):
        device.empty(1, "int32")


def test_a_device_that_was_not_used_can_be_closed(tmp_path):
    context = PrimaryContext(Driver(), None, 1.0, GpuLock("GPU-1", tmp_path))
    Blocks(context).close()
    context.close()
    assert not context.usable
