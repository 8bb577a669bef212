"""The types of shared variables in figures."""

from __future__ import annotations

from pytest_gpulab.grading.explanation.tracing import _shared_types


def test_shared_variables_have_the_types_of_their_declarations() -> None:
    source = "__shared__ unsigned mine; __shared__ float2 pairs[4];\n__shared__ GPULAB_T tile[64], sum;"
    found = {
        name: (str(dtype), lanes) for name, (dtype, lanes) in _shared_types(source, {"GPULAB_T": "double"}).items()
    }
    assert found == {"mine": ("uint32", 1), "pairs": ("float32", 2), "tile": ("float64", 1), "sum": ("float64", 1)}
