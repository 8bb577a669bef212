"""The one error for PTX that cannot be translated, whatever is wrong with it."""

from __future__ import annotations

import re

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Statement

# what the translator's own code raises where an instruction has too few operands, or some of another kind
MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError,
)  # fmt: skip


def refusal(statement: Statement | None) -> CannotSimulate:
    """Return the error for a statement that is not built as the assembler wants it."""
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
    """Return the error with the name that CUDA's guide has for what the instruction belongs to, where it has one."""
    found = (name for pattern, name in _FEATURES.items() if re.search(pattern, error.what))
    feature = next(found, None)
    return error if feature is None else CannotSimulate(f"{feature}: {error.what}", error.where)
