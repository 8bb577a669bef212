"""Opcodes that NumPy lacks, on NumPy values of exact dtypes.

- `integers`, `floats`, `halves`, `float8`: by type.
- `rounding`, `conversions`: rounding modes, fused multiply-add, and conversions.
- `sampling`: texels of a texture fetch.
"""
