"""NVIDIA GPUs as data.

- `architectures`: limits per compute capability.
- `occupancy`: theoretical occupancy.
- `metrics`: names of the figures in a profile.
"""
