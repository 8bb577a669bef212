"""Finding PyCUDA, the driver and a GPU, and saying exactly which of them is missing."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any, TypeVar

from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceUnavailable
from pytest_gpulab.devices.system.packages import why_not_imported

OPEN_LIMIT_S = 30.0  # takes a tenth of a second, and seconds while dozens of processes do the same
# PyCUDA gives no error numbers, so the driver's words are matched (cuda.h, CUresult: 100, 34).
_NO_GPU = ("no CUDA-capable device", "CUDA driver is a stub library")
_Answer = TypeVar("_Answer")


def check_packages() -> None:
    """Make sure that PyCUDA is installed, and that cuda-bindings can be imported beside it.

    Raises:
        DeviceAbsent: PyCUDA is not installed; says how to get it.
        DeviceUnavailable: cuda-bindings cannot be imported; says why.
    """
    try:
        importlib.import_module("pycuda")
    except ImportError:
        raise DeviceAbsent(
            "PyCUDA is not installed; get it with: python -m pip install pycuda "
            "(it is built on the spot and needs the CUDA toolkit and a C++ compiler)"
        ) from None
    try:
        importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceUnavailable(why_not_imported(error)) from None


def load_driver() -> ModuleType:
    """Return `pycuda.driver`, initialised, with at least one device behind it.

    Raises:
        DeviceAbsent: says what is missing and how to get it.
        DeviceUnavailable: says what does not work.
    """
    check_packages()
    try:
        with warnings.catch_warnings():  # PyCUDA warns of versions before it fails, and warnings may be errors
            warnings.simplefilter("ignore")
            driver = importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise _unloadable(error) from None
    try:
        _initialise()
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        raise _refused(driver_words(error)) from None
    if count == 0:
        raise DeviceAbsent("no GPU can be used: the NVIDIA driver is installed but knows of no device")
    return driver


def _initialise() -> None:
    """Let the driver start, which takes a tenth of a second and, beside others, a whole one.

    PyCUDA, which starts it as well and says what is wrong, lets no other thread run meanwhile; cuda-bindings does.
    """
    from cuda.bindings import driver

    with suppress(RuntimeError):  # there is no driver
        _in_time(lambda: driver.cuInit(0))


def primary_context(gpu: Any) -> Any:
    """Return the primary context of one of PyCUDA's devices, and let other threads run while the driver makes it.

    In it the driver sleeps while it waits for the GPU: beside others it would keep a processor core busy for nothing.

    Raises:
        pycuda.driver.Error: there is no room for it.
        DeviceUnavailable: the driver does not answer.
    """
    from cuda.bindings import driver

    error, device = driver.cuDeviceGetByPCIBusId(gpu.pci_bus_id().encode())
    if error == driver.CUresult.CUDA_SUCCESS:
        driver.cuDevicePrimaryCtxSetFlags(device, driver.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC.value)
        error, _ = _in_time(lambda: driver.cuDevicePrimaryCtxRetain(device))
    try:
        return gpu.retain_primary_context()  # which PyCUDA keeps; if the driver made none it says why
    finally:
        if error == driver.CUresult.CUDA_SUCCESS:
            driver.cuDevicePrimaryCtxRelease(device)


def _in_time(question: Callable[[], _Answer]) -> _Answer:
    """Return what the driver answers; a GPU that broke may keep it from answering, and that is no student's fault.

    Raises:
        DeviceUnavailable: there is no answer in time.
    """
    answers: SimpleQueue[_Answer | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(question())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=OPEN_LIMIT_S)
    except Empty:
        what = f"the NVIDIA driver had not opened the GPU after {OPEN_LIMIT_S:g} s"
        raise DeviceUnavailable(f"{what}; nvidia-smi shows whether it answers at all") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


@contextmanager
def memory_for(driver: ModuleType, what: str) -> Iterator[None]:
    """Take memory on a GPU that others use, too.

    Raises:
        DeviceUnavailable: there is no room.
    """
    try:
        yield
    except driver.MemoryError as error:
        raise gpu_memory_full(what, error) from None


def gpu_memory_full(what: str, error: Exception) -> DeviceUnavailable:
    """Return that there is no room on a GPU, for the driver's reason."""
    return DeviceUnavailable(f"not enough GPU memory for {what}: {driver_words(error)}")


def _unloadable(error: ImportError) -> DeviceUnavailable:
    if "libcuda" in str(error) or "nvcuda" in str(error):
        return DeviceAbsent(
            "the NVIDIA driver is not installed (PyCUDA is, but the driver's library libcuda was not found); "
            "install the driver for your GPU"
        )
    return DeviceUnavailable(f"PyCUDA is installed but cannot be loaded: {error}")


def _refused(words: str) -> DeviceUnavailable:
    missing = DeviceAbsent if any(no_gpu in words for no_gpu in _NO_GPU) else DeviceUnavailable
    return missing(f"no GPU can be used; the NVIDIA driver says: {words}")


def driver_words(error: Exception) -> str:
    """Return the driver's own words without the function that PyCUDA puts in front (`cuInit failed: ...`)."""
    return str(error).split(" failed: ", 1)[-1]
