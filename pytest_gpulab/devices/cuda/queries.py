"""What PyCUDA does not bind: a kernel's parameter sizes and how many of its blocks fit on a multiprocessor.

Both are asked of the driver through cuda-bindings, on a second load of the same cubin in the same context, because
PyCUDA does not hand out its own handles.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Any

from cuda.bindings import driver

_MAX_PARAMETERS = 1024  # a kernel has at most 4 KiB (32 KiB from sm_70 on) of them


class InspectedModule:
    """A cubin loaded a second time; make it and use it with the same context current."""

    def __init__(self, cubin: bytes) -> None:
        self._module = _value(driver.cuModuleLoadData(cubin))
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
        """Return how many blocks fit on one multiprocessor at a time, or None where the driver does not say."""
        error, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self._function(symbol), block_threads, shared_bytes
        )
        return int(blocks) if error == driver.CUresult.CUDA_SUCCESS else None

    def _load(self, symbol: str) -> Any:
        return _value(driver.cuModuleGetFunction(self._module, symbol.encode()))


def _value(answer: tuple[Any, Any]) -> Any:
    """Return the second half of cuda-bindings' (error, value)."""
    error, value = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver answers {error.name}")
    return value
