"""NVRTC: compilation without a GPU or toolkit, in a sandboxed process under limits.

- `nvrtc`: source to PTX and machine code.
- `nvrtc_headers`: headers that NVRTC lacks.
- `nvrtc_program`: the program of the compiler process; it calls NVRTC.
- `compiler_process`, `sandbox`, `limits`: the compiler process, its file access and its resource limits.
- `static_limits`: memory that a kernel declares beyond a GPU's limits.
- `cache`: compiled code and reference times on disk.
- `elf`: ELF files.
"""
