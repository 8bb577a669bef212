"""The simulated GPU: PTX, compiled by NVRTC, executed with NumPy.

In the order of the work: `ptx` reads the text, `translation` writes each basic block of a kernel as a Python function,
`execution` runs groups of lanes over them, calling the `vocabulary` of `arithmetic`; `accounts` names what was counted,
`cost` estimates a time from it; `device` speaks the device protocol.
"""

from .device import SimulatedDevice

__all__ = ["SimulatedDevice"]
