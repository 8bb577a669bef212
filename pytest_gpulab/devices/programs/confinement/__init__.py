"""Programs of other people: compiled and run in bubblewrap's sandbox, under limits.

- `system_calls`: a filter of system calls.
- `compilers`: nvcc, ptxas and addr2line in a sandbox.
- `running`: a program in a sandbox, with the simulated GPU outside of it.
"""
