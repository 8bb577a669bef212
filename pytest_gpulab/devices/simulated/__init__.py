"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

- `device`, `module`, `variables`: the device protocol, compiled modules, and their variables.
- `arrays`, `device_memory`: arrays of the device protocol, textures, and their allocation.
- `ptx`, `translation`, `arithmetic`: from PTX to Python functions, and what they call.
- `runtime_builtins`: functions that generated code calls.
- `groups`, `memory`, `warps`, `execution`: the execution of translated kernels.
- `hazards`, `counting`, `sass`: races and uninitialised reads, hardware counters, machine code.
- `gpus`, `cost`: GPUs as data, and the estimated time.
- `resource_limits`, `report`: checks of memory and registers, and the modelled GPU's description in reports.
"""

from .device import SimulatedDevice

__all__ = ["SimulatedDevice"]
