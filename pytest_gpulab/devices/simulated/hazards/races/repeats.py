"""Repeated accesses by the same instruction and lanes to the same addresses: they cause no further races."""

from __future__ import annotations

import numpy as np

from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess

from .thinning import MAX_LANES, SELF_LANES


class Repeats:
    """Accesses since the last synchronisation, to find repetitions. The owner clears them at each synchronisation."""

    def __init__(self) -> None:
        self._known: dict[object, MemoryAccess] = {}
        self._lanes = 0

    def clear(self) -> None:
        """Discard all accesses."""
        self._known.clear()
        self._lanes = 0

    def has(self, access: MemoryAccess) -> bool:
        """Return True if an access repeats an earlier one, else record it.

        If the repetition writes other values, the values of the recorded access become unknown.
        """
        address = access.address
        key = (access.site.index, id(access.lanes), id(access.memory), address.shape, address.item(0), address.item(-1))
        earlier = self._known.get(key)
        if earlier is not None and (earlier.address is address or np.array_equal(earlier.address, address)):
            pairs = zip(earlier.values, access.values, strict=False)
            if not all(one is other or np.array_equal(one, other) for one, other in pairs):
                earlier.values.clear()
            return True
        if self._lanes > MAX_LANES:
            self.clear()
        self._known[key] = access
        self._lanes += address.size + SELF_LANES
        return False
