"""The situations of the table of troubleshooting: each function provokes one and returns its message."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest
from course import RIGHT, SLOW_TO_COMPILE
from machine import Machine, unavailable
from test_timing_report import book

from pytest_gpulab.devices.compiler import compiler_process, nvrtc
from pytest_gpulab.devices.compiler.cache import Cache
from pytest_gpulab.devices.compiler.sandbox import Limits
from pytest_gpulab.devices.cuda import nvml
from pytest_gpulab.devices.cuda.driver import memory_for
from pytest_gpulab.devices.cuda.faults import kernel_fault, not_loaded, not_translated, overtime_fault
from pytest_gpulab.devices.cuda.gpu_lock import GpuLock
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc, compiles_nothing, explained
from pytest_gpulab.devices.cuda.nvcc.limits import limited
from pytest_gpulab.devices.cuda.timing.sampler import own_kernels_run
from pytest_gpulab.devices.protocol import DeviceUnavailable, OutOfMemory
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.grade import Measurement
from pytest_gpulab.grading.isolation import remote, worker_process
from pytest_gpulab.grading.speed.measured import too_much_interference
from pytest_gpulab.grading.speed.verdict import inconclusive
from pytest_gpulab.grading.tools import ncu
from pytest_gpulab.reports.terminal.sections import footnotes

MEASURED = Measurement("2^20", 1.0, 2.0, 2.0, 2.0, False, low=1.99, high=2.01)


def no_pycuda(machine: Machine) -> str:
    machine.patch.setitem(sys.modules, "pycuda", None)
    return unavailable()


def hidden_package(machine: Machine) -> str:
    (machine.folder / "cuda.py").touch()
    machine.patch.syspath_prepend(machine.folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
        machine.patch.delitem(sys.modules, name)
    return without_nvrtc()


def without_nvrtc() -> str:
    compiler_process._of_process.cache_clear()
    return unavailable("sim")


def no_nvrtc(machine: Machine) -> str:
    for name in ("cuda", "cuda.bindings", "cuda.bindings.nvrtc"):
        machine.patch.setitem(sys.modules, name, None)
    return without_nvrtc()


def macos(machine: Machine) -> str:
    machine.patch.setattr(sys, "platform", "darwin")
    return no_nvrtc(machine)


def windows(machine: Machine) -> str:
    machine.patch.setitem(sys.modules, "fcntl", None)
    return unavailable()


def no_driver(machine: Machine) -> str:
    return machine.without("libcuda.so.1: cannot open shared object file")


def broken_pycuda(machine: Machine) -> str:
    return machine.without("undefined symbol: cuFoo_v2")


def driver_refuses(machine: Machine) -> str:
    machine.gpus(1, "no CUDA-capable device is detected")
    return unavailable()


def no_gpus(machine: Machine) -> str:
    machine.gpus(0)
    return unavailable()


def number_too_high(machine: Machine) -> str:
    machine.gpus(2)
    (machine.folder / "nvcc").touch(mode=0o700)
    machine.patch.setenv("PATH", str(machine.folder))
    return unavailable("cuda:7")


def no_nvcc(machine: Machine) -> str:
    machine.gpus(1)
    machine.patch.setenv("PATH", str(machine.folder))
    return unavailable()


def noexec(machine: Machine) -> str:
    machine.patch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(DeviceUnavailable) as caught:
        limited("nvcc", machine.folder, Limits())
    return str(caught.value)


def nvcc_compiles_nothing(machine: Machine) -> str:
    return compiles_nothing("nvcc fatal   : Unsupported gpu architecture 'compute_120'")


def nvcc_without_room(machine: Machine) -> str:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (machine.folder / "nvcc").touch(mode=0o700)
    machine.patch.setenv("PATH", str(machine.folder))
    machine.patch.setattr(Nvcc, "_compiled_apart", full)
    with pytest.raises(DeviceUnavailable) as caught:
        Nvcc().try_out("sm_90")
    return str(caught.value)


def gpu_too_old(machine: Machine) -> str:
    machine.gpus(1)
    driver = sys.modules["pycuda.driver"]
    driver.Device = type("Old", (Gpu,), {"compute_capability": lambda gpu: (6, 1)})  # type: ignore[attr-defined]
    machine.patch.setattr(import_module("pytest_gpulab.devices.cuda.device"), "Nvcc", lambda: None)
    return unavailable()


def no_nvml(machine: Machine) -> str:
    import pynvml

    def refuse() -> None:
        raise pynvml.NVMLError_DriverNotLoaded

    machine.patch.setattr(pynvml, "nvmlInit", refuse)
    return nvml.describe("0000:01:00.0")[0]


def old_pynvml(machine: Machine) -> str:
    machine.patch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    return nvml.describe("0000:01:00.0")[0]


def described_on_a_gpu(machine: Machine) -> str:
    machine.gpu_to_look_at()
    return machine.graded("--gpulab-device=cuda", "--gpulab-gpu=t4", "-k", "nothing")


def unknown_gpu(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-gpu=rtx2")


def arch_on_a_gpu(machine: Machine) -> str:
    machine.gpu_to_look_at()
    return machine.graded("--gpulab-device=cuda", "--gpulab-arch=sm_86", "-k", "nothing")


def unknown_arch(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-arch=sm_12")


def no_sanitizer(machine: Machine) -> str:
    machine.gpu_to_look_at()
    return machine.graded("--gpulab-device=cuda", "--gpulab-sanitizer")


def sanitizer_simulated(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-sanitizer", "-k", "compile")


def no_ncu(machine: Machine) -> str:
    machine.gpu_to_look_at()
    return machine.graded("--gpulab-device=cuda", "--gpulab-ncu", "-k", "nothing")


def ncu_simulated(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-ncu", "-k", "compile")


def ncu_denied(machine: Machine) -> str:
    return ncu.refusal("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")


def ncu_kept_out(machine: Machine) -> str:
    return ncu.refusal("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that\n")


def ncu_otherwise(machine: Machine) -> str:
    return ncu.refusal("==ERROR== Unknown Error on device 0.\n")


def ncu_silent(machine: Machine) -> str:
    return ncu.refusal("==WARNING== No kernels were profiled.\n")


def others(machine: Machine) -> str:
    return "\n".join(footnotes(book(low=1.99, high=2.01, shared_with=("render (process 7)",))))


def slowed_down(machine: Machine) -> str:
    return "\n".join(footnotes(book(low=1.99, high=2.01, held_down_by=("power cap",))))


def calibrated_beside_others(machine: Machine) -> str:
    return "\n".join(too_much_interference(0.293, is_slow).finding.what for is_slow in (False, True))


def kept_from_the_gpu(machine: Machine) -> str:
    with pytest.raises(DeviceUnavailable) as caught, own_kernels_run():
        raise overtime_fault("pause", 10.0)
    return str(caught.value)


def lock_held(machine: Machine) -> str:
    with GpuLock("GPU-1", machine.folder).exclusive():
        again = GpuLock("GPU-1", machine.folder).exclusive(wait_s=0)
        with pytest.raises(DeviceUnavailable) as caught, again:
            pass
    return str(caught.value)


def worker_does(machine: Machine, deed: str) -> None:
    machine.patch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", deed))


def slow_start(machine: Machine) -> str:
    machine.patch.setattr(worker_process, "START_LIMIT_S", 0.2)
    worker_does(machine, "import time; time.sleep(60)")
    return machine.graded("--gpulab-device=sim", "--gpulab-timeout=60", "-k", "compile")


def slow_check(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-timeout=0.01", "-k", "compile", source=SLOW_TO_COMPILE)


def starved_compiler(machine: Machine) -> str:
    machine.patch.setattr(remote, "JUDGED_FROM_S", 0.5)
    machine.patch.setattr(remote, "STARVED", 10.0)  # of a limit that is shorter than any in earnest
    sleeps = "import time; from pytest_gpulab.grading.grader import Grader; Grader.run = lambda *_: time.sleep(60); "
    worker_does(machine, worker_process.PROGRAM.replace("main(int", f"{sleeps}main(int"))
    return machine.graded("--gpulab-device=sim", "--gpulab-timeout=0.5", "-k", "compile")


def slow_kernel(machine: Machine) -> str:
    return str(overtime_fault("spin", 10.0))


def crash(machine: Machine) -> str:
    dies = "import os; from pytest_gpulab.grading.grader import Grader; "
    dies += "Grader.run = lambda *_: os.kill(os.getpid(), 9); "
    worker_does(machine, worker_process.PROGRAM.replace("main(int", f"{dies}main(int"))
    return machine.graded("--gpulab-device=sim", "--gpulab-timeout=60", "-k", "compile")


def killed_for_memory(machine: Machine) -> str:
    kills = iter(range(1000))
    machine.patch.setattr(worker_process, "memory_kills", lambda: next(kills))
    return crash(machine)


def compiler_killed_for_memory(machine: Machine) -> str:
    kills = iter(range(1000))
    machine.patch.setattr(compiler_process, "memory_kills", lambda: next(kills))
    killed = {"ended": "it was ended by SIGKILL"}
    machine.patch.setattr(compiler_process.CompilerProcess, "_request", lambda *asked: killed)
    with closing(compiler_process.CompilerProcess(cache=Cache(None))) as compiler, pytest.raises(OutOfMemory) as caught:
        nvrtc.compile_ptx(RIGHT, "twice.cu", "compute_90", run=compiler.compiled)
    return of_error(caught.value)[1].what


def class_graded(machine: Machine, *options: str) -> str:
    machine.course.write("class/anna/twice.cu", RIGHT)
    result = machine.course.grade("--gpulab-submissions=class", "--gpulab-workers=1", *options)
    return "\n".join(result.errlines)


def cache_not_writable(machine: Machine) -> str:
    machine.course.write("cache", "a file, where a folder should be")
    return class_graded(machine, "-o", "cache_dir=cache")


def store_not_writable(machine: Machine) -> str:
    return class_graded(machine, f"--gpulab-store={machine.folder}")


def drive_without_locks(machine: Machine) -> str:
    def refuse(*asked: object) -> None:
        raise OSError(37, "No locks available")

    machine.patch.setattr("fcntl.lockf", refuse)
    return class_graded(machine, "--gpulab-store=grades.sqlite")


def compiler_limit(machine: Machine) -> str:
    return explained("", Limits())


def gpu_full(machine: Machine) -> str:
    driver = ModuleType("pycuda.driver")
    vars(driver).update(MemoryError=MemoryError)
    with pytest.raises(DeviceUnavailable) as caught, memory_for(driver, "1,048,576 bytes more"):
        raise MemoryError("cuMemAlloc failed: out of memory")
    return str(caught.value)


def gpu_broken(machine: Machine) -> str:
    return str(kernel_fault("reduce", "uncorrectable ECC error encountered"))


def driver_too_old(machine: Machine) -> str:
    return str(not_loaded("device kernel image is invalid"))


def driver_without_compiler(machine: Machine) -> str:
    return str(not_translated("PTX JIT compiler library not found"))


def gpu_silent(machine: Machine) -> str:
    machine.gpus(1)
    machine.patch.setattr(import_module("pytest_gpulab.devices.cuda.driver"), "OPEN_LIMIT_S", 0.05)
    machine.patch.setattr(import_module("cuda.bindings.driver"), "cuInit", lambda flags: time.sleep(2))
    return unavailable()


class Gpu:
    """As the driver shows one."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "a GPU"

    def compute_capability(self) -> tuple[int, int]:
        return (9, 0)

    def pci_bus_id(self) -> str:
        return "0000:65:00.0"

    def retain_primary_context(self) -> None:
        raise OSError("cuDevicePrimaryCtxRetain failed: out of memory")


def gpu_full_of_processes(machine: Machine) -> str:
    machine.gpus(1)
    sys.modules["pycuda.driver"].Device = Gpu  # type: ignore[attr-defined]
    nvcc = SimpleNamespace(try_out=lambda architecture: None)
    machine.patch.setattr(import_module("pytest_gpulab.devices.cuda.device"), "Nvcc", lambda: nvcc)
    without_bindings = Gpu.retain_primary_context  # they need a driver
    machine.patch.setattr(import_module("pytest_gpulab.devices.cuda.context"), "primary_context", without_bindings)
    return unavailable()


def no_calibration(machine: Machine) -> str:
    machine.gpu_to_look_at()
    return machine.graded("--gpulab-device=cuda", "-k", "nothing")


def calibrated_simulated(machine: Machine) -> str:
    return machine.graded("--gpulab-device=sim", "--gpulab-calibrate")


def too_close(machine: Machine) -> str:
    return inconclusive(MEASURED).what
