"""Numbers of machine instructions per PTX instruction, for counts without the machine code.

PTX is not machine code: some instructions vanish (address space conversions, moves between registers), some
expand to a sequence. The figures are the lengths of the sequences that `ptxas` emits for compute capability 9.0, on the
fast path.
"""

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Statement, Sym

_EXPANDED = {
    ("rem", "32"): 18.0, ("div", "32"): 16.0, ("rem", "64"): 70.0, ("div", "64"): 70.0,
    ("div", "f32"): 10.0, ("div", "f64"): 18.0, ("sqrt", "f32"): 8.0, ("sqrt", "f64"): 18.0,
    ("rcp", "f32"): 6.0, ("rcp", "f64"): 12.0, ("mul", "64"): 4.0, ("mad", "64"): 4.0, ("popc", "64"): 3.0,
    ("add", "64"): 2.0, ("sub", "64"): 2.0, ("setp", "64"): 2.0, ("selp", "64"): 2.0, ("and", "64"): 2.0,
    ("or", "64"): 2.0, ("xor", "64"): 2.0, ("min", "64"): 4.0, ("max", "64"): 4.0,
}  # fmt: skip
_EXPANDED |= {(op, "64"): 3.0 for op in ("shl", "shr")}
PROLOGUE = 2.0  # of each kernel: the stack pointer and the descriptor of global memory
_DRIVER_CALL = 20.0  # the driver's printf or assert


def weight(statement: Statement) -> float:
    """Return the expected number of machine instructions."""
    if not isinstance(statement, Instruction):
        return _DRIVER_CALL
    op = statement.op
    if op[0] == "cvta" or (op[0] == "mov" and not _reads_special_register(statement)):
        return 0.0
    if "approx" in op or "wide" in op:
        return 1.0
    kind = op[-1] if op[-1][0] == "f" else op[-1].lstrip("bsu")
    if kind == "64" and statement.number >= 0 and _is_address(statement):
        return 1.0
    return _EXPANDED.get((op[0], kind), 1.0)


def _reads_special_register(statement: Instruction) -> bool:
    source = statement.operands[-1]
    return isinstance(source, Sym) and source.name.startswith("%")


def _is_address(statement: Instruction) -> bool:
    """Return whether it adds an offset to a pointer: with the preceding multiplication, this is one instruction."""
    return statement.op == ("add", "s64")


def is_corrected(statement: Instruction | Call) -> bool:
    """Return whether its machine code has a correction that is seldom executed: an integer division."""
    return isinstance(statement, Instruction) and statement.op[0] in ("div", "rem")
