"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

- `device`, `module`: the device protocol with arrays and textures, compiled modules.
- `variables`: the variables of a module in memory, and checks of memory and registers.
- `ptx`, `translation`, `arithmetic`: from PTX to Python functions, and what they call.
- `groups`, `memory`, `warps`, `execution`: the execution of translated kernels.
- `trace`: events of a launch, recorded for figures.
- `hazards`, `counting`, `sass`: races and uninitialised reads, hardware counters, machine code.
- `gpus`, `cost`: GPUs as data and in reports, and the estimated time.
"""

from .device import SimulatedDevice

__all__ = ["SimulatedDevice"]
