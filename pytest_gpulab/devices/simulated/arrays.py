"""Arrays in the memory of the simulated GPU, as the device protocol has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Array, LaunchError
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena


class SimulatedMemory:
    """An array of the simulated GPU.

    Args:
        arena: where it is allocated.
        forget: told before the memory is given back.
    """

    def __init__(
        self, arena: Arena, shape: tuple[int, ...], dtype: np.dtype[Any], forget: Callable[[SimulatedMemory], None]
    ) -> None:
        self._forget = forget
        self.dtype, self.shape = dtype, shape
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.allocation: Allocation | None = arena.allocate(self.nbytes)

    @property
    def address(self) -> int:
        """Where the array lies in device memory.

        Raises:
            LaunchError: it was freed.
        """
        return self.live.base

    @property
    def live(self) -> Allocation:
        """Its bytes.

        Raises:
            LaunchError: it was freed.
        """
        if self.allocation is None:
            raise LaunchError("this array was freed")
        return self.allocation

    def _contents(self) -> Array:
        contents: Array = self.live.data[: self.nbytes].view(self.dtype).reshape(self.shape)
        return contents

    def get(self) -> Array:
        """Return a copy in host memory."""
        contents: Array = self._contents().copy()
        return contents

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents.

        Raises:
            ValueError: where the shape differs.
        """
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(f"an array of shape {self.shape} cannot be set from one of shape {values.shape}")
        self._contents()[...] = values
        self.live.written = None

    def mark_unwritten(self) -> None:
        """Count the contents as undefined: a launch with `check` reports who reads them before they are written.

        Raises:
            LaunchError: it was freed.
        """
        self.live.mark_unwritten()

    def damage(self, name: str = "array") -> str | None:
        """Return None: the simulated GPU stops at a write outside an array."""
        return None

    def free(self) -> None:
        """Give the memory back."""
        if self.allocation is not None:
            self._forget(self)
            self.allocation = None
