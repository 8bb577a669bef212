"""Accesses made before by the same instruction and lanes to the same addresses: they add nothing to a race."""

from __future__ import annotations

import numpy as np

from pytest_gpulab.devices.simulated.hazards.accesses import Access

from .thinning import MAX_LANES, SELF_LANES


class Repeats:
    """Some accesses, to be known again; as long as nothing is put in order, which whoever keeps them must know."""

    def __init__(self) -> None:
        self._known: dict[object, Access] = {}
        self._lanes = 0

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._lanes = 0

    def has(self, access: Access) -> bool:
        """Return whether an access was made before, else remember it.

        Where other values were written before, those of the access that is remembered are no longer known.
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
