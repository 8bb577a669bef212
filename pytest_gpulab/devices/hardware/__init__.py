"""NVIDIA GPUs as data.

- `architectures`: limits per compute capability.
- `occupancy`: theoretical occupancy.
- `properties`: what a device query prints.
- `metrics`: names of the figures in a profile.
"""
