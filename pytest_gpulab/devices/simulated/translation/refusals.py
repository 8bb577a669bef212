"""The one error for PTX that cannot be translated, whatever is wrong with it."""

from __future__ import annotations

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
