"""Machine code (SASS) of kernels, and the executions of each instruction.

- `instructions`, `code`, `line_table`: machine code as basic blocks with PTX statements.
- `joins`: accesses that the assembler merged.
- `flow`, `linear`, `executions`: executions per instruction.
"""
