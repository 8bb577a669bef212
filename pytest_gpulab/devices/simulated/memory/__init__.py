"""The memories of the simulated GPU.

- `spaces`: global, constant, shared and local memory, exact about bounds and alignment.
- `atomics`, `heap`: atomics, and `malloc` in kernels.
- `async_copies`, `bulk_copies`: `cp.async` and `cp.async.bulk`.
- `textures`: textures and surfaces.
- `printf`: output of kernels.
- `locating`: the array that an address belongs to.
- `disturbed_reads`: reads of constant memory that give other values.
"""
