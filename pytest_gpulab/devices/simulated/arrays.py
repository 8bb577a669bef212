"""Arrays of the device protocol in the memory of the simulated GPU."""

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
        arena: the memory that it is allocated in.
        forget: callback that frees the memory.
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
        """The address of the first byte in device memory.

        Raises:
            LaunchError: it was freed.
        """
        return self.live.base

    @property
    def live(self) -> Allocation:
        """The allocation.

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
            ValueError: the shape differs.
        """
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(f"an array of shape {self.shape} cannot be set from one of shape {values.shape}")
        self._contents()[...] = values
        self.live.written = None

    def mark_unwritten(self) -> None:
        """Mark the contents as undefined: a launch with `check` reports reads before a write.

        Raises:
            LaunchError: it was freed.
        """
        self.live.mark_unwritten()

    def damage(self, name: str = "array") -> str | None:
        """Return None: on the simulated GPU, an out-of-bounds write ends the launch."""
        return None

    def free(self) -> None:
        """Free the memory."""
        if self.allocation is not None:
            self._forget(self)
            self.allocation = None
