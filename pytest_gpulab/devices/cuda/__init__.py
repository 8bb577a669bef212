"""A real NVIDIA GPU through PyCUDA. Import `CudaDevice` from `.device`: this file loads nothing."""
