"""nvcc: compilation for a real GPU.

- `compile`: compiles a submission.
- `toolkit`: the toolkit's files.
- `headers`: CUDA headers that a source does not need.
- `limits`: limits for nvcc's processes.
"""
