"""The runtime library's calls, as the simulated GPU answers them; each module registers its functions with `api`.

- `memory`: allocations, and what a pointer points to.
- `copies`: copies and sets, with checks of both sides.
- `modules`: fat binaries, kernels and variables.
- `launches`: launches, function attributes, occupancy.
- `streams`: streams and events, on the estimated time.
- `properties`: the modelled GPU's properties and limits, synchronisation.
"""

from . import copies, launches, memory, modules, properties, streams

__all__ = ["copies", "launches", "memory", "modules", "properties", "streams"]
