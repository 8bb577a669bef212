"""The runtime library's calls, as the simulated GPU answers them; each module registers its functions with `api`.

- `memory`: allocations, and what a pointer points to.
- `copies`: copies and sets, with checks of both sides.
- `arrays`: CUDA arrays, textures and surfaces.
- `modules`: fat binaries, kernels and variables.
- `launches`, `functions`: launches, kernels' attributes and occupancy.
- `reach`: arrays of which a launch reaches only a part.
- `device_launches`: kernels that launch kernels.
- `streams`: streams and events, on the estimated time.
- `properties`: the modelled GPU's properties and limits, synchronisation.
"""

from . import arrays, copies, functions, launches, memory, modules, properties, streams

__all__ = ["arrays", "copies", "functions", "launches", "memory", "modules", "properties", "streams"]
