"""NVRTC: compilation without a GPU or toolkit, in a sandboxed process under limits.

- `nvrtc`: source to PTX and machine code.
- `nvrtc_headers`: headers that NVRTC lacks.
- `nvrtc_program`: the program that calls NVRTC in its own process.
- `compiler_process`, `sandbox`, `limits`: that process, what it may see and use.
- `static_limits`: memory that a kernel declares beyond a GPU's limits.
- `cache`: compiled code and reference times on disk.
- `elf`, `filenames`: ELF files, and the names that compilers get for files.
"""
