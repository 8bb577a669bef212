"""Functions that translated kernels call: public functions of the arithmetic, warp operations, clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import CodeType
from typing import Any

import numpy as np

MODULES = {
    name: module
    for module, names in {
        "arithmetic.integers": "select widen mul_wide mul_hi div_int rem_int shl shr funnel bit_length clz bfind brev "
        "popc fns bfe bfi bmsk prmt lop3 dot4 parts saturated carry_add carry_sub",
        "arithmetic.rounding": "fma_f32 rounded_f32 flushed odd narrow fma_f64 sum_error rounded_f64",
        "arithmetic.floats": "canonical ftz saturate min_float max_float or_nan xor_sign div_approx sin_approx "
        "cos_approx has_class",
        "arithmetic.conversions": "compare round_integral float_to_int int_to_float int_to_int to_tf32",
        "arithmetic.halves": "unpack pack halves fma_half compare_halves set_pairs",
        "arithmetic.float8": "float8_to_half to_float8",
        "execution.launch_state": "low high",
        "warps.collectives": "lanemask shuffle ballot activemask vote match_any match_all redux elect",
        "warps.tensor_cores": "load_matrix store_matrix multiply load_tiles store_tiles transpose_tile",
    }.items()
    for name in names.split()
}
"""The module of each function; a module is imported with the first kernel that calls one of its functions."""


def runtime_builtins(code: CodeType) -> Mapping[str, Any]:
    """Return the functions that translated code names."""
    return {"np": np} | {
        name: getattr(import_module(f"{__package__}.{MODULES[name]}"), name) for name in _names(code) if name in MODULES
    }


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
