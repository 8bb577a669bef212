"""Timing of launches on a GPU that several graders share.

- `sampler`: samples with CUDA events, caches cold or warm.
- `interruptions`: time slices of other processes.
- `overhead`: launch overhead included in a sample.
- `comparison`, `own_kernels`: comparison of arrays on the GPU, by the package's own kernels.
"""
