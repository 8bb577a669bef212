"""The memories of the simulated GPU.

- `spaces`: global, constant, shared and local memory, exact about bounds and alignment.
- `atomics`, `async_copies`, `heap`: atomics, `cp.async`, `malloc` in kernels.
- `printf`: output of kernels.
- `locating`: the array that an address belongs to.
- `disturbed_reads`: reads of constant memory that give other values.
"""
