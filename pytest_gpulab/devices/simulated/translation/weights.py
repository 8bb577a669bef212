"""How many machine instructions a PTX instruction becomes, for the modelled instruction count.

PTX is not machine code: some instructions vanish (address space conversions, moves that only name a value), some expand
to a sequence. The figures are those of the sequences that `ptxas` emits for compute capability 9.0 on the fast path.
"""

from __future__ import annotations

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Statement

_EXPANDED = {
    ("rem", "32"): 18.0, ("div", "32"): 16.0, ("rem", "64"): 70.0, ("div", "64"): 70.0,
    ("div", "f32"): 9.0, ("div", "f64"): 20.0, ("sqrt", "f32"): 8.0, ("sqrt", "f64"): 20.0,
    ("rcp", "f32"): 6.0, ("rcp", "f64"): 14.0, ("mul", "64"): 3.0, ("mad", "64"): 3.0, ("popc", "64"): 3.0,
}  # fmt: skip
_VANISH = {"cvta", "mov"}


def weight(statement: Statement) -> float:
    """Return the expected number of machine instructions."""
    if not isinstance(statement, Instruction):
        return 20.0  # a call of the driver's printf or assert
    op = statement.op
    if op[0] in _VANISH or op[:2] == ("ld", "param"):
        return 0.0
    if "approx" in op:
        return 1.0
    kind = op[-1] if op[-1][0] == "f" else op[-1].lstrip("bsu")
    if op[0] == "mul" and "wide" in op:
        return 1.0
    return _EXPANDED.get((op[0], kind), 1.0)
