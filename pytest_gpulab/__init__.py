"""Grade student-written CUDA kernels with pytest, on an NVIDIA GPU or on a simulated one."""

__version__ = "0.1.0"
