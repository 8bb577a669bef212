"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

- `device`, `module`, `variables`: the device protocol with arrays and textures, compiled modules, their variables.
- `ptx`, `translation`, `arithmetic`: from PTX to Python functions, and what they call.
- `runtime_builtins`: functions that generated code calls.
- `groups`, `memory`, `warps`, `execution`: the execution of translated kernels.
- `trace`: events of a launch, recorded for figures.
- `hazards`, `counting`, `sass`: races and uninitialised reads, hardware counters, machine code.
- `gpus`, `cost`: GPUs as data and in reports, and the estimated time.
- `resource_limits`: checks of memory and registers.
"""

from .device import SimulatedDevice

__all__ = ["SimulatedDevice"]
