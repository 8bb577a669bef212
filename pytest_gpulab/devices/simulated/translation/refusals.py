"""The error for PTX that cannot be translated."""

from __future__ import annotations

import re

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Statement

# exceptions of the translator's own code for an instruction with too few operands or operands of another kind
MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError,
)  # fmt: skip


def refusal(statement: Statement | None) -> CannotSimulate:
    """Return the error for a malformed statement."""
    if isinstance(statement, Instruction):
        return CannotSimulate(f"the instruction {statement.name}", statement.where)
    if isinstance(statement, Call):
        return CannotSimulate(f"a call of {statement.callee.name}()", statement.where)
    return CannotSimulate("PTX of this form")


_FEATURES = {
    r"%(n?clusterid|n?cluster_|is_explicit_cluster)|mapa|getctarank|barrier\.cluster": "thread block clusters",
    r"\.bulk": "bulk asynchronous copies (TMA)",
}  # by a pattern in the message about the instruction or the register


def with_feature(error: CannotSimulate) -> CannotSimulate:
    """Return the error with the CUDA feature that the instruction belongs to, if it is a known one."""
    found = (name for pattern, name in _FEATURES.items() if re.search(pattern, error.what))
    feature = next(found, None)
    return error if feature is None else CannotSimulate(f"{feature}: {error.what}", error.where)
