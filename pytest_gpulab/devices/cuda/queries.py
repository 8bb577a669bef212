"""Driver queries that PyCUDA lacks: parameter sizes, resident blocks per multiprocessor, and their limits.

They use cuda-bindings on a second load of the same cubin in the same context, because PyCUDA does not expose its
handles.
"""

from functools import lru_cache
from itertools import count
from typing import Any

from cuda.bindings import driver

from pytest_gpulab.devices.hardware.architectures import SmLimits, generation

from .faults import DriverRefusal


class InspectedModule:
    """A second load of a cubin, with the same context current. Raises DriverRefusal without such a file or kernel."""

    def __init__(self, cubin: bytes) -> None:
        self._module = value_of(driver.cuModuleLoadData(cubin))
        self._function = lru_cache(maxsize=None)(self._load)

    def parameter_bytes(self, symbol: str) -> tuple[int, ...] | None:
        """Return the size of each parameter, or None with a driver older than CUDA 12.4."""
        sizes: list[int] = []
        for index in count():
            try:
                error, _, size = driver.cuFuncGetParamInfo(self._function(symbol), index)
            except RuntimeError:
                return None
            if error == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
                return tuple(sizes)
            if error != driver.CUresult.CUDA_SUCCESS:
                return None
            sizes.append(int(size))
        raise AssertionError("unreachable")

    def resident_blocks(self, symbol: str, block_threads: int, shared_bytes: int) -> int | None:
        """Return the number of resident blocks per multiprocessor, or None if the driver gives none."""
        self._allow(symbol, shared_bytes)
        error, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self._function(symbol), block_threads, shared_bytes
        )
        return int(blocks) if error == driver.CUresult.CUDA_SUCCESS else None

    def suggested_block(self, symbol: str, shared_bytes: int) -> int | None:
        """Return the threads per block that the driver suggests, or None without a suggestion."""
        self._allow(symbol, shared_bytes)
        error, _, threads = driver.cuOccupancyMaxPotentialBlockSize(self._function(symbol), None, shared_bytes, 0)
        return int(threads) if error == driver.CUresult.CUDA_SUCCESS and int(threads) else None

    def _allow(self, symbol: str, shared_bytes: int) -> None:
        """Raise the kernel's limit of dynamic shared memory, which is 48 KiB by default.

        Beyond the GPU's own limit the driver refuses, and then reports 0 resident blocks.
        """
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.cuFuncSetAttribute(self._function(symbol), limit, shared_bytes)

    def _load(self, symbol: str) -> Any:
        return value_of(driver.cuModuleGetFunction(self._module, symbol.encode()))


def limits_of_current_gpu() -> SmLimits:
    """Return the limits of a multiprocessor of the current context's GPU, or raise DriverRefusal."""
    gpu = value_of(driver.cuCtxGetDevice())

    def attribute(name: str) -> int:
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(value_of(driver.cuDeviceGetAttribute(key, gpu)))

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    return SmLimits(
        generation=generation(f"sm_{major}{minor}"),
        blocks=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        warps=attribute("MAX_THREADS_PER_MULTIPROCESSOR") // attribute("WARP_SIZE"),
        shared_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        reserved_bytes=attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        shared_unit=256 if major == 7 else 128,
        registers=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
    )


def value_of(result: tuple[Any, Any]) -> Any:
    """Return the value of cuda-bindings' result (error, value), or raise DriverRefusal."""
    error, value = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise _refusal(error)
    return value


def check(result: tuple[Any]) -> None:
    """Raise DriverRefusal if cuda-bindings' result (error,) is an error."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise _refusal(result[0])


def _refusal(error: Any) -> DriverRefusal:
    _, words = driver.cuGetErrorString(error)
    return DriverRefusal(words.decode())
