"""Own kernels of the package, in PTX, which the driver compiles for the GPU at hand."""

from types import ModuleType
from typing import Any

from pytest_gpulab.devices.cuda.driver import driver_words
from pytest_gpulab.devices.cuda.faults import not_translated


def load(driver: ModuleType, ptx: bytes) -> Any:
    """Return PyCUDA's module, in the current context, or raise DeviceUnavailable or `pycuda.driver.MemoryError`."""
    try:
        return driver.module_from_buffer(ptx)
    except driver.MemoryError:
        raise
    except driver.Error as error:
        raise not_translated(driver_words(error)) from None
