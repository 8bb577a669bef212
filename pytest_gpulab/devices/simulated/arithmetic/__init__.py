"""Opcodes that NumPy lacks, on NumPy values of exact dtypes.

- `integers`, `floats`, `halves`: by type.
- `rounding`, `conversions`: rounding modes, fused multiply-add, and conversions.
"""
