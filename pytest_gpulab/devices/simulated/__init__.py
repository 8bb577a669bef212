"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

- `device`: the device protocol.
- `arrays`, `device_memory`: arrays of the device protocol, textures, and their allocation.
- `ptx`, `translation`, `arithmetic`: from PTX to Python functions, and what they call.
- `runtime_builtins`: the functions that generated code may call.
- `groups`, `memory`, `warps`, `execution`: running them.
- `hazards`, `counting`, `sass`: races and uninitialised reads, hardware counters, machine code.
- `gpus`, `cost`: GPUs as data, and the estimated time.
- `resource_limits`, `report`: memory that no GPU has, and the modelled GPU's description in reports.
"""

from .device import SimulatedDevice

__all__ = ["SimulatedDevice"]
