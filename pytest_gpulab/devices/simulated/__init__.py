"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

In the order of the work: `ptx_reader` reads the text into `ptx`, `inline`, `passing` and `control` turn a kernel into
basic blocks, `program` writes each as a Python function with the help of `emit*`, `scheduler` runs groups of lanes
(`lanes`, `group`, `barriers`) of a `wave` over them, with `memory`, `atomics`, `warp`, `integers`, `floats`,
`rounding`, `halves`, `conversions` and `printing` doing what the instructions say; `counters` and `cost` make an
estimate of it; `device` speaks the device protocol, `launching` checks a launch and runs its blocks.
"""

from pytest_gpulab.devices.simulated.device import SimulatedDevice

__all__ = ["SimulatedDevice"]
