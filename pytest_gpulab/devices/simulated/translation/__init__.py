"""Translation: from a kernel in PTX to a `Program`, a Python function per basic block.

- `translator`, `program`: the translation of a kernel, and its result.
- `calls`: calls of device functions.
- `control`: basic blocks, their order, and liveness.
- `analysis`: spin loops, checked loads, regions.
- `emission`: PTX instructions as Python text.
- `sites`: memory instructions, and the arrays that their addresses are computed from.
- `fragments`: matrix elements per lane.
- `weights`: machine instructions per PTX instruction.
"""
