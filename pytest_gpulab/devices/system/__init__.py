"""The operating system: file locks, processes, packages. No CUDA.

- `locks`: file locks.
- `processes`: processes that belong to graders.
- `memory_kills`: processes that Linux killed for lack of memory.
- `packages`: why a package cannot be imported.
- `threads`: one thread for NumPy's linear algebra.
"""
