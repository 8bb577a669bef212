"""Translation: from a kernel in PTX to a `Program`, a Python function per basic block.

- `translator`, `program`, `blocks`: the translation of a kernel, and its result.
- `calls`: calls of device functions.
- `control`: basic blocks, their order, and liveness.
- `analysis`: spin loops, checked loads, regions, arrays behind addresses.
- `functions`, `emission`: the text of the Python functions.
- `layout`: offsets of variables and parameters.
- `refusals`: the error for PTX that cannot be translated.
- `sites`, `line_numbers`: memory instructions and source lines by number.
- `fragments`: matrix elements per lane.
- `weights`: machine instructions per PTX instruction.
"""
