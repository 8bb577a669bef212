"""Properties of PTX instructions, and the error for those that cannot be translated."""

from __future__ import annotations

import re
from functools import lru_cache

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Call,
    Instruction,
    Reg,
    Statement,
    registers_of,
)

TENSOR_CORES = {"wmma", "mma", "ldmatrix", "stmatrix", "movmatrix"}
"""Instructions that all lanes of a warp execute together, without a lane mask."""
WARP_SYNC = {"shfl", "vote", "match", "redux", *TENSOR_CORES}
ENTER, LEAVE, RETURN = "enter~", "leave~", "return~"  # added by the translation, for calls of recursive functions
REFUSED = "refused"  # also added: ends the launch with the message in its opcode
STACK_AREA = "the stack"  # the local variable for all frames of a thread, also added
BARRIERS = {"bar", "barrier"}
_NO_RESULT = {"st", "red", "cp", "bar", "barrier", "bra", "brx", "membar", "fence", "nanosleep", "trap", "brkpt",
              "exit", "ret", "prefetch", "prefetchu", "pmevent", "discard", "applypriority",
              "griddepcontrol", "stmatrix", "sust"}  # fmt: skip
MBARRIER_TESTS = {"test_wait", "try_wait"}
_MBARRIER_RESULTS = {"arrive", "arrive_drop", "pending_count", *MBARRIER_TESTS}


@lru_cache(maxsize=4096)
def has_result(op: tuple[str, ...]) -> bool:
    """Return whether an instruction with this opcode writes its first operand."""
    name = op[0]
    if name == "wmma":
        return op[1] != "store"
    if name == "mbarrier":
        return op[1] in _MBARRIER_RESULTS
    return name not in _NO_RESULT or (name in BARRIERS and "red" in op)


def is_arrival(instruction: Instruction) -> bool:
    """Return whether an instruction arrives at an mbarrier."""
    return instruction.op[0] == "mbarrier" and instruction.op[1] in ("arrive", "arrive_drop")


def defined_and_used(statement: Statement, registers: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return the registers that a statement writes and reads."""
    if type(statement) is Call:  # of a driver function; its parameters are registers at this point
        defined, used = (
            [name for passed in names if (name := f"{passed}+0") in registers]
            for names in (statement.results, statement.arguments)
        )
        return defined, used
    assert type(statement) is Instruction
    operands = statement.operands
    if operands and has_result(statement.op):
        first = operands[0]
        defined = [first.name] if type(first) is Reg else registers_of(operands[:1])
        used = registers_of(operands[1:])
    else:
        defined, used = [], registers_of(operands)
    if statement.guard is not None:
        used.append(statement.guard[0].name)
    return defined, used


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


_OF_CLUSTERS = ("%cluster", "%nclusterid")


def needs_cluster(statement: Statement) -> bool:
    """Return whether a statement concerns the other blocks of a thread block cluster."""
    if not isinstance(statement, Instruction):
        return False
    is_named = any(getattr(operand, "name", "").startswith(_OF_CLUSTERS) for operand in statement.operands)
    return is_named or statement.op[0] in ("mapa", "getctarank") or statement.op[:2] == ("barrier", "cluster")


_FEATURES = {
    r"\.bulk": "bulk asynchronous copies (TMA)",
}  # by a pattern in the message about the instruction or the register


def with_feature(error: CannotSimulate) -> CannotSimulate:
    """Return the error with the CUDA feature that the instruction belongs to, if it is a known one."""
    found = (name for pattern, name in _FEATURES.items() if re.search(pattern, error.what))
    feature = next(found, None)
    return error if feature is None else CannotSimulate(f"{feature}: {error.what}", error.where)
