"""PTX instructions as Python text.

- `block`: one basic block, and the table of opcodes.
- `integers`, `floats`, `conversions`, `memory`, `textures`: opcodes of threads.
- `warps`, `mbarriers`, `stack`, `tensor_cores`: opcodes of warps, asynchronous barriers, recursive calls, matrices.
"""
