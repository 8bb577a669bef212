"""NVIDIA GPUs as data.

- `architectures`: limits per compute capability.
- `occupancy`: theoretical occupancy.
- `properties`: properties of a GPU, as a device query prints them.
- `metrics`: names of the figures in a profile.
"""
