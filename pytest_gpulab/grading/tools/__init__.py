"""NVIDIA's command-line tools.

- `ncu`: Nsight Compute.
- `sanitizer`: compute-sanitizer.
"""
