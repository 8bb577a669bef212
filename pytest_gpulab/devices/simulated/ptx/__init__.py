"""PTX as plain data, and its parser. The meaning of instructions is defined in `translation`.

- `syntax`: modules, functions, variables, instructions.
- `lexer`, `reader`: from text to this data.
- `placing`: source lines of loads that the compiler moved.
- `messages`: source lines of the assembler's messages.
"""
