"""What opcodes compute, on NumPy values of exact dtypes, where NumPy has no such operation."""
