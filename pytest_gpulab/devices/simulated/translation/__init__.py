"""Translation: from a kernel in PTX to a `Program`, a Python function per basic block.

- `calls`: calls of device functions.
- `control`, `components`: basic blocks, their order, the live registers, and loops.
- `program`, `emission`: the functions' text.
- `refusals`: the error for PTX that cannot be translated.
- `sites`, `line_numbers`: memory instructions and source lines by number.
- `loads`, `waits`, `phase_waits`, `regions`: spin loops, checked loads, and code that the assembler may reorder.
- `origins`, `targets`: arrays that an access may be meant for, and arrays that a kernel may change.
- `fragments`: matrix elements per lane.
- `weights`: machine instructions per PTX instruction.
"""
