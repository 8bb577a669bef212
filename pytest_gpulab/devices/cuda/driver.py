"""Access to PyCUDA, the driver and a GPU, with messages about the missing part."""

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

OPEN_LIMIT_S = 30.0  # opening takes 0.1 s, and seconds while dozens of processes do the same
# PyCUDA's errors have no numbers, so the driver's text is matched (cuda.h, CUresult: 100, 34).
_NO_GPU = ("no CUDA-capable device", "CUDA driver is a stub library")
_Result = TypeVar("_Result")


def check_packages() -> None:
    """Raise DeviceAbsent if PyCUDA is not installed, and DeviceUnavailable if cuda-bindings cannot be imported.

    The messages have the remedy and the cause.
    """
    try:
        importlib.import_module("pycuda")
    except ImportError:
        raise DeviceAbsent(
            "PyCUDA is not installed; get it with: python -m pip install pycuda "
            "(pip compiles it, which requires the CUDA toolkit and a C++ compiler)"
        ) from None
    try:
        importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceUnavailable(why_not_imported(error)) from None


def load_driver() -> ModuleType:
    """Return `pycuda.driver`, initialised, with at least one device.

    Raises DeviceAbsent with the remedy if a part is missing, and DeviceUnavailable with its name if one does not work.
    """
    check_packages()
    try:
        with warnings.catch_warnings():  # PyCUDA warns before it fails, and pytest may turn warnings into errors
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
        raise DeviceAbsent("no GPU can be used: the NVIDIA driver is installed but finds no device")
    return driver


def _initialise() -> None:
    """Initialise the driver, which takes 0.1 s, and 1 s beside other processes.

    PyCUDA initialises it, too, and reports errors, but holds the GIL meanwhile; cuda-bindings releases it.
    """
    from cuda.bindings import driver

    with suppress(RuntimeError):  # no driver is installed
        _in_time(lambda: driver.cuInit(0))


def primary_context(gpu: Any) -> Any:
    """Return the primary context of a PyCUDA device; other threads run while the driver creates it.

    The context blocks while it waits for the GPU (CU_CTX_SCHED_BLOCKING_SYNC): by default it would keep a CPU core
    busy. Raises pycuda.driver.Error if GPU memory is full, and DeviceUnavailable if the driver does not answer.
    """
    from cuda.bindings import driver

    error, device = driver.cuDeviceGetByPCIBusId(gpu.pci_bus_id().encode())
    if error == driver.CUresult.CUDA_SUCCESS:
        driver.cuDevicePrimaryCtxSetFlags(device, driver.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC.value)
        error, _ = _in_time(lambda: driver.cuDevicePrimaryCtxRetain(device))
    try:
        return gpu.retain_primary_context()  # PyCUDA owns this reference; it raises the cause if creation failed
    finally:
        if error == driver.CUresult.CUDA_SUCCESS:
            driver.cuDevicePrimaryCtxRelease(device)


def _in_time(call: Callable[[], _Result]) -> _Result:
    """Return the result of a call of the driver, under a time limit: with a broken GPU the driver may not return.

    Raises DeviceUnavailable if the call has not returned in time.
    """
    results: SimpleQueue[_Result | Exception] = SimpleQueue()

    def run() -> None:
        try:
            results.put(call())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = results.get(timeout=OPEN_LIMIT_S)
    except Empty:
        what = f"the NVIDIA driver had not opened the GPU after {OPEN_LIMIT_S:g} s"
        raise DeviceUnavailable(f"{what}; try nvidia-smi") from None
    if isinstance(result, Exception):
        raise result
    return result


@contextmanager
def memory_for(driver: ModuleType, what: str) -> Iterator[None]:
    """Turn errors of allocations inside `with` into DeviceUnavailable: the GPU's memory is full."""
    try:
        yield
    except driver.MemoryError as error:
        raise gpu_memory_full(what, error) from None


def gpu_memory_full(what: str, error: Exception) -> DeviceUnavailable:
    """Return the error for full GPU memory, with the driver's text."""
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
    """Return the driver's text without the function name that PyCUDA puts in front (`cuInit failed: ...`)."""
    return str(error).split(" failed: ", 1)[-1]
