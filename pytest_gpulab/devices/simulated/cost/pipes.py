"""The pipes of an SM that a PTX instruction uses, beside the issue slots.

The rules follow the sequences that `ptxas` emits for compute capability 7.5 and above on the fast path. A division or
square root starts with a special function. An integer division converts to float and back around one.
"""

import re
from collections.abc import Mapping
from math import prod

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Statement
from pytest_gpulab.devices.simulated.translation.analysis.waits import is_fence
from pytest_gpulab.devices.simulated.translation.calls.inline import INDIRECT_RETURN_JUMP, RETURN_JUMP
from pytest_gpulab.devices.simulated.translation.weights import weight

SPECIAL, DOUBLE, FLOAT, MULTIPLY, SHUFFLE = "special", "fp64", "fp32", "int_multiply", "shuffle"
BLOCK_FENCE, JUMP, TABLE_JUMP = "fence of a block", "jump to a register", "jump by a table"
_LANES = 32  # per warp
_NOTHING: Mapping[str, float] = {}
_APPROXIMATED = {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "rcp", "sqrt", "div"}
_BIT_COUNTS = {"popc", "clz", "bfind", "brev"}
_FLOATS = {"f32", "f16", "f16x2", "bf16", "bf16x2"}
_MOVES = {"mov", "ld", "st", "ldu", "atom", "red", "selp", "cvta"}
_SHUFFLED: Mapping[str, float] = {SHUFFLE: 1.0}
_ALWAYS = dict.fromkeys(_MOVES, _NOTHING) | dict.fromkeys(("shfl", "redux", "match"), _SHUFFLED)
_JUMPS = {  # to an address in a register: of a `switch`, back from a function, through a pointer and back
    ("brx", "idx"): {TABLE_JUMP: 1.0}, RETURN_JUMP: {JUMP: 1.0}, INDIRECT_RETURN_JUMP: {JUMP: 2.0},
}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_AT_ONCE = {"f64": 2.0, "tf32": 8.0, "s8": 32.0, "u8": 32.0}
"""Speedup of a tensor core over the same SM's ordinary pipe at the same clock, by type; 16 for 16-bit floats.

Source: NVIDIA's data sheet of the H100 SXM5, rates without sparsity in TFLOPS or TOPS. Tensor cores: TF32 494.7, 16-bit
floats 989.4, bytes 1978.9, doubles 66.9; ordinary pipes: floats 66.9, doubles 33.5. Over 132 SMs, at 1830 MHz for the
first three and at 1980 MHz for the others, that is 2048, 4096, 8192 and 256 operations per clock over 256 and 128. The
A100's whitepaper has the same ratios (TF32 156, 16-bit floats 312, bytes 624 over 19.5; doubles 19.5 over 9.7). The T4
and the RTX 3090 have lower ratios, which the model ignores.
"""


def pipes(statement: Statement) -> Mapping[str, float]:
    """Return the number of instructions of each pipe for a statement."""
    if not isinstance(statement, Instruction):
        return _NOTHING
    name, kind = statement.op[0], statement.op[-1]
    if name == "mma" or statement.op[:2] == ("wmma", "mma"):
        return _matrix_product(statement)
    if (always := _of_any_type(statement)) is not None:
        return always
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


def _of_any_type(statement: Instruction) -> Mapping[str, float] | None:
    """Return the pipes of an instruction that do not depend on its type; None if they do."""
    if is_fence(statement):
        return {BLOCK_FENCE: 1.0} if "cta" in statement.op else _NOTHING
    return _JUMPS.get(statement.op, _ALWAYS.get(statement.op[0]))


def _matrix_product(statement: Instruction) -> Mapping[str, float]:
    """Return a tensor core's work in instructions of the ordinary pipe of the same type."""
    shape = next(match for word in statement.op if (match := _SHAPE.fullmatch(word)))
    factor = next((word for word in statement.op if word in _AT_ONCE), "f16")
    products = prod(map(int, shape.groups())) / _LANES
    return {DOUBLE if factor == "f64" else FLOAT: products / _AT_ONCE.get(factor, 16.0)}


def _conversion(statement: Instruction) -> Mapping[str, float]:
    to, of = statement.op[-2], statement.op[-1]
    if "f64" in (to, of):
        return {DOUBLE: 1.0}
    if (of in _FLOATS) and to not in _FLOATS:  # to an integer; the reverse is an ordinary instruction
        return {SPECIAL: 1.0}
    return _NOTHING
