"""A real NVIDIA GPU through PyCUDA. This file imports nothing: import `CudaDevice` from `.device`.

- `device`: the device protocol.
- `driver`, `faults`, `queries`: PyCUDA and the driver, their errors, and functions that PyCUDA lacks.
- `context`, `gpu`, `fleet`: a process's GPU, and the GPUs of the machine.
- `gpu_lock`: shared and exclusive use of a GPU among graders.
- `module`, `memory`, `textures`: compiled modules, arrays between guard zones, textures.
- `nvml`, `report`: clocks, power and temperature; the GPU's description in reports, and its properties.
- `nvcc`, `timing`: compilation and timing.
"""
