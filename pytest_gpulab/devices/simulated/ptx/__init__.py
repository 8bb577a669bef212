"""PTX as plain data, and its parser. The meaning of instructions is defined in `translation`.

- `syntax`: modules, functions, variables, instructions, and the pieces of text that they are written in.
- `reader`: from text to this data.
- `source_lines`: source lines of accesses that have none, and of the assembler's messages.
"""
