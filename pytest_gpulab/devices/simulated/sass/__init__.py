"""Machine code (SASS): how often each instruction of it was executed.

- `instructions`, `code`, `line_table`: machine code as basic blocks with PTX statements.
- `joins`: accesses that the assembler merged.
- `flow`, `linear`, `executions`: executions per instruction.
"""
