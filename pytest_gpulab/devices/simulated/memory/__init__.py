"""The memories of the simulated GPU.

- `spaces`: global, constant, shared and local memory, with checks of bounds and alignment.
- `atomics`, `heap`: atomics, and `malloc` in kernels.
- `async_copies`, `bulk_copies`: `cp.async` and `cp.async.bulk`.
- `textures`: textures and surfaces.
- `snapshot`: copies of global memory, for another run from the same contents.
- `printf`: output of kernels.
- `locating`: the array that an address belongs to.
"""
