"""Errors of the driver outside of launches: the GPU's failure, a late fault, no memory, a bug of the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from fake_driver import Driver

from pytest_gpulab.devices.compiler.elf import CubinNames
from pytest_gpulab.devices.cuda import module as module_module
from pytest_gpulab.devices.cuda.context import PrimaryContext
from pytest_gpulab.devices.cuda.faults import DriverRefusal
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.cuda.memory import Blocks, CudaMemory, copy_within
from pytest_gpulab.devices.cuda.module import CudaModule
from pytest_gpulab.devices.cuda.timing import own_kernels
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault
from pytest_gpulab.devices.stopwatch import Copy
from pytest_gpulab.grading.findings import of_error

pytestmark = pytest.mark.unit

LOST = "unknown error"
CALLS = {
    "mem_alloc": lambda gpu: CudaMemory(gpu.blocks, (3,), np.float32),
    "memcpy_htod": lambda gpu: gpu.memory.set(np.zeros(8, np.float32)),
    "memcpy_dtoh": lambda gpu: gpu.memory.get(),
    "memcpy_dtod": lambda gpu: gpu.guarded(),
    "copies": lambda gpu: gpu.copied(),
    "damage": lambda gpu: gpu.damaged(),
    "read_symbol": lambda gpu: gpu.module.read_symbol("x"),
    "set_constant": lambda gpu: gpu.module.set_constant("x", np.zeros(4, np.uint8)),
    "Event": lambda gpu: gpu.event(),
    "free": lambda gpu: gpu.freed(),
    "push": lambda gpu: gpu.memory.get(),
    "pop": lambda gpu: gpu.memory.get(),
}


class Failing(Driver):
    """A driver that does all it is asked, until it has an error."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.Context = SimpleNamespace(pop=self.does)

    def does(self, *_: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self

    memcpy_htod = memcpy_dtoh = memcpy_dtod = mem_alloc = Event = free = push = module_from_buffer = does


class Gpu:
    """An array and a module in a context."""

    def __init__(self, folder: Path) -> None:
        self.driver = Failing()
        self.context = PrimaryContext(self.driver, None, 1.0, GpuLock("G", folder))  # type: ignore[arg-type]
        self.context._context = SimpleNamespace(push=self.driver.does)
        self.blocks = Blocks(self.context)
        self.memory, self.other = (CudaMemory(self.blocks, (8,), np.float32) for _ in range(2))
        with self.context.current():
            assert self.blocks.guard
        self.module = CudaModule.__new__(CudaModule)
        self.module._context = self.context
        self.module._names = CubinNames({}, {"x": "x"}, 0)
        self.module._module = SimpleNamespace(get_global=lambda name: (0, 4))

    def guarded(self) -> None:
        with self.context.current():
            self.memory.guard()

    def copied(self) -> None:
        with self.context.current():
            copy_within([Copy(self.other, self.memory)])

    def damaged(self) -> None:
        self.memory._is_guarded = True
        self.memory.damage()

    def event(self) -> None:
        with self.context.current():
            self.driver.Event()

    def freed(self) -> None:
        self.blocks._kept_bytes = 1 << 30  # so that it is given back to the driver
        self.memory.free()


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    return Gpu(tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_gpu_costs_no_point_in_any_call(gpu: Gpu, call: str) -> None:
    gpu.context.latest = "f"
    told = f"the GPU itself failed, says the NVIDIA driver: {LOST}"
    raised_by(gpu, CALLS[call], Driver.Error(f"cu{call} failed: {LOST}"), DeviceUnavailable, told)
    assert not gpu.context.usable  # another process is to try again
    gpu.driver.error = None
    with pytest.raises(DeviceUnavailable, match=f"^{told}$"):
        gpu.memory.get()


def raised_by(gpu: Gpu, call: Callable[[Gpu], object], error: Exception, kind: type[Exception], told: str) -> Exception:
    gpu.driver.error = error
    with pytest.raises(kind) as caught:
        call(gpu)
    assert str(caught.value) == told
    return caught.value


@pytest.mark.parametrize(
    "words",
    [
        "uncorrectable ECC error encountered",
        "uncorrectable NVLink error detected during the execution",
        "Invalid access of peer GPU memory over nvlink or a hardware error",
        "the MPS client has been terminated by the server",
    ],
)
def test_no_student_pays_for_a_gpu_that_fails(gpu: Gpu, words: str) -> None:
    gpu.context.latest = "f"
    told = f"the GPU itself failed, says the NVIDIA driver: {words}"
    error = raised_by(gpu, CALLS["memcpy_dtoh"], Driver.Error(f"f failed: {words}"), DeviceUnavailable, told)
    assert isinstance(error, DeviceUnavailable)
    verdict, found = of_error(error)
    assert (verdict, found.what) == ("not gradable", f"The device failed: {told}")


FAULTS = {
    "an illegal memory access was encountered": ("out-of-bounds", "a thread accessed memory that belongs to no array"),
    "invalid program counter": ("device-fault", "the GPU stopped the kernel: invalid program counter"),
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_fault_that_shows_late_is_the_latest_kernels(gpu: Gpu, words: str) -> None:
    gpu.context.latest = "f"
    code, what = FAULTS[words]
    fault = raised_by(gpu, CALLS["memcpy_dtoh"], Driver.Error(f"f failed: {words}"), KernelFault, f"f: {what}")
    assert isinstance(fault, KernelFault) and fault.code == code
    with pytest.raises(DeviceUnavailable, match=r"cannot be used any more .* because of an earlier launch: f: "):
        gpu.memory.get()


@pytest.mark.parametrize("words", FAULTS)
def test_a_fault_without_any_kernel_is_the_gpus(gpu: Gpu, words: str) -> None:
    told = f"the GPU itself failed, says the NVIDIA driver: {words}"
    raised_by(gpu, CALLS["memcpy_htod"], Driver.Error(f"f failed: {words}"), DeviceUnavailable, told)
    assert not gpu.context.usable


def test_a_driver_that_has_no_room_for_itself_breaks_nothing(gpu: Gpu) -> None:
    told = "not enough GPU memory for the driver itself: out of memory"
    raised_by(gpu, CALLS["memcpy_dtoh"], Driver.MemoryError("cuMemcpy failed: out of memory"), DeviceUnavailable, told)
    gpu.driver.error = None
    assert gpu.context.usable and gpu.memory.get().shape == (8,)


def test_a_mistake_of_ours_stays_one(gpu: Gpu) -> None:
    words = "cuMemcpyDtoH failed: invalid argument"
    raised_by(gpu, CALLS["memcpy_dtoh"], Driver.Error(words), Driver.Error, words)
    assert gpu.context.usable


def test_a_driver_without_room_while_a_kernel_is_waited_for_is_no_fault_of_the_kernel(gpu: Gpu) -> None:
    told = "not enough GPU memory for the event after f: out of memory"
    error = Driver.MemoryError("cuEventCreate failed: out of memory")
    raised_by(gpu, lambda gpu: gpu.context.wait("f"), error, DeviceUnavailable, told)
    assert not gpu.context.usable  # who knows whether the kernel has ended


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "PTX JIT compiler library not found\n",
            "the NVIDIA driver does not compile the timing kernels for this GPU: PTX JIT compiler library not found; "
            "is its library libnvidia-ptxjitcompiler installed?",
        ),
        (LOST, f"the GPU itself failed, says the NVIDIA driver: {LOST}"),
    ],
)
def test_a_driver_that_does_not_compile_our_own_kernels_is_the_machines(gpu: Gpu, words: str, told: str) -> None:
    error = Driver.Error(f"cuModuleLoadDataEx failed: {words}")
    raised_by(gpu, lambda gpu: own_kernels.load(gpu.driver, b""), error, DeviceUnavailable, told)


def test_room_for_our_own_kernels_is_another_matter(gpu: Gpu) -> None:
    words = "cuModuleLoadDataEx failed: out of memory"
    raised_by(gpu, lambda gpu: own_kernels.load(gpu.driver, b""), Driver.MemoryError(words), Driver.MemoryError, words)


ECC = "uncorrectable ECC error encountered"
DONE, WRONG = bindings.CUresult.CUDA_SUCCESS, bindings.CUresult.CUDA_ERROR_INVALID_VALUE
ANSWERS = ("cuModuleLoadData", "cuCtxGetDevice", "cuDeviceGetAttribute", "cuModuleGetFunction")  # in turn


def asked(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, refused: str, words: str) -> None:
    """Load a file and look at its kernel while the driver refuses one of the questions through cuda-bindings."""
    for question in ANSWERS:
        answer = WRONG if question == refused else DONE
        monkeypatch.setattr(bindings, question, lambda *_, answer=answer: (answer, 9))
    monkeypatch.setattr(bindings, "cuGetErrorString", lambda error: (DONE, words.encode()))
    monkeypatch.setattr(module_module, "read_names", lambda cubin: CubinNames({"f": "f"}, {}, 0))
    gpu.context.gpu = SimpleNamespace(total_memory=lambda: 1 << 30)
    CudaModule(gpu.context, b"", "").resources("f")


@pytest.mark.parametrize("refused", ANSWERS)
def test_a_lost_gpu_costs_no_point_in_calls_beside_pycuda(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    with pytest.raises(DeviceUnavailable, match=f"^the GPU itself failed, says the NVIDIA driver: {ECC}$"):
        asked(gpu, monkeypatch, refused, ECC)


def test_a_module_without_memory_for_a_second_copy_costs_no_point(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceUnavailable, match=r"^not enough GPU memory for the compiled file: out of memory$"):
        asked(gpu, monkeypatch, "cuModuleLoadData", "out of memory")


def test_a_wrong_question_of_ours_stays_one(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverRefusal, match=r"^invalid argument$"):
        asked(gpu, monkeypatch, "cuCtxGetDevice", "invalid argument")
    assert gpu.context.usable
