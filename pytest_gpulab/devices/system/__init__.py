"""The operating system: file locks, processes, packages. No CUDA.

- `locks`: file locks.
- `processes`: processes of graders: their mark, their threads, and those that Linux killed for lack of memory.
- `packages`: why a package cannot be imported.
"""
