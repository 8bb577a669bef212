"""PTX instructions as Python text.

- `block`: one basic block, and the table of opcodes.
- `integers`, `floats`, `compare`, `moves`, `memory`, `warps`: the opcodes by kind.
"""
