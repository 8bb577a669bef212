"""Which of an SM's pipes, beside the issue slots, a PTX instruction keeps busy.

The rules follow the sequences that `ptxas` emits for compute capability 7.5 and above on the fast path: a division or
square root starts from a special function; an integer division converts to float and back around one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Statement
from pytest_gpulab.devices.simulated.translation.weights import weight

SPECIAL, DOUBLE, FLOAT, MULTIPLY, SHUFFLE = "special", "fp64", "fp32", "int_multiply", "shuffle"
_NOTHING: Mapping[str, float] = {}
_APPROXIMATED = {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "rcp", "sqrt", "div"}
_BIT_COUNTS = {"popc", "clz", "bfind", "brev"}
_WARP_WIDE = {"shfl", "redux", "match"}
_FLOATS = {"f32", "f16", "f16x2", "bf16", "bf16x2"}
_MOVES = {"mov", "ld", "st", "ldu", "atom", "red", "selp", "shfl", "cvta"}


def pipes(statement: Statement) -> Mapping[str, float]:
    """Return by pipe how many of its instructions a statement becomes."""
    if not isinstance(statement, Instruction):
        return _NOTHING
    name, kind = statement.op[0], statement.op[-1]
    if name in _WARP_WIDE:
        return {SHUFFLE: 1.0}
    if name in _MOVES:
        return _NOTHING
    if name == "cvt":
        return _conversion(statement)
    if kind == "f64":
        return {DOUBLE: weight(statement)}
    if name in _APPROXIMATED and (kind in _FLOATS):
        return {SPECIAL: 1.0}
    if name in ("div", "rem"):
        return {SPECIAL: 3.0, MULTIPLY: 6.0}
    if name in _BIT_COUNTS:
        return {SPECIAL: 1.0}
    if kind in _FLOATS:
        return {FLOAT: 1.0} if name in ("add", "sub", "mul", "fma", "mad") else _NOTHING
    return {MULTIPLY: 1.0} if name in ("mul", "mad") else _NOTHING


def _conversion(statement: Instruction) -> Mapping[str, float]:
    to, of = statement.op[-2], statement.op[-1]
    if "f64" in (to, of):
        return {DOUBLE: 1.0}
    if (of in _FLOATS) and to not in _FLOATS:  # rounding to an integer; the way back is an ordinary instruction
        return {SPECIAL: 1.0}
    return _NOTHING
