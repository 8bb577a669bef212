"""NVRTC: compilation without a GPU or toolkit, in a sandboxed process under limits.

- `nvrtc`: source to PTX, with the headers that NVRTC lacks.
- `machine_code`: source to machine code.
- `nvrtc_program`: the program of the compiler process; it calls NVRTC.
- `compiler_process`, `sandbox`: the compiler process; its resource limits and file access.
- `static_limits`: memory that a kernel declares beyond a GPU's limits.
- `cache`: compiled code and reference times on disk.
- `elf`: ELF files, and the names in a cubin.
"""
