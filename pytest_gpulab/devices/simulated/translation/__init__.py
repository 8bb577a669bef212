"""Translation: from a kernel in PTX to a `Program`, a Python function per basic block.

- `inline`, `passing`: inlines device functions.
- `control`: basic blocks, their order, and the live registers.
- `program`, `emission`: the functions' text.
- `refusals`: the error for PTX that cannot be translated.
- `sites`, `line_numbers`: memory instructions and source lines by number.
- `loads`, `waits`, `regions`: spin loops, checked loads, and code that the assembler may reorder.
- `origins`, `targets`: arrays that an access may be meant for, and arrays that a kernel may change.
- `weights`: machine instructions per PTX instruction.
"""
