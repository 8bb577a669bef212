"""Functions that translated kernels call: public functions of the arithmetic, warp operations, clocks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .arithmetic import conversions, float8, floats, halves, integers, rounding
from .execution import surroundings
from .warps import collectives, tensor_cores


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if callable(value) and name[0].islower()}


RUNTIME_BUILTINS: dict[str, Any] = {"np": np}
for _module in (integers, rounding, floats, conversions, halves, float8, surroundings, collectives, tensor_cores):
    RUNTIME_BUILTINS |= _public(_module)
