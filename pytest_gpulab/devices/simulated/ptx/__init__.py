"""PTX as plain data, and reading it: the grammar only, not what an instruction does."""
