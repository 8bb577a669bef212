"""PTX as plain data, and reading it. Grammar only.

- `syntax`: modules, functions, variables, instructions.
- `lexer`, `declarations`, `reader`: from text to that.
- `placing`: source lines of loads that the compiler moved.
- `collector`: no garbage collection while millions of objects are created.
"""
