"""The operating system: file locks, processes, packages. No CUDA.

- `locks`: file locks.
- `processes`: processes that belong to graders, with one thread each for linear algebra.
- `memory_kills`: processes that Linux killed for lack of memory.
- `packages`: why a package cannot be imported.
"""
