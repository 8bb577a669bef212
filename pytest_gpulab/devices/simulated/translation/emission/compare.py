"""Comparisons and selections: `setp`, `set`, `selp`, `slct`."""

from __future__ import annotations

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Pair

from .block import CODES, BlockWriter, emits, type_code

_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_OPERATORS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_HOW = {*_OPERATORS, "ne", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
_COMPARISONS = f"{' '.join(_HOW)} {' '.join(_LOGIC)} ftz"
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_TRUE = {"f4": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}  # 1.0; integers have all bits set


def _compared(b: BlockWriter, i: Instruction) -> str:
    """Return an expression for the comparison of the first two sources."""
    how, kind = i.op[1], i.op[-1]
    if how not in _HOW:
        raise CannotSimulate("a comparison of this kind")
    if kind in _HALVES:
        if "ftz" in i.op or kind.endswith("x2"):
            raise CannotSimulate("a comparison of this kind")
        first, second = (b.read(operand, "u2") for operand in i.operands[1:3])
        return f"compare_halves({how!r}, {first}, {second}, {kind!r})"
    code = type_code(i)
    if how in ("eq", "ne") and code[0] == "i":
        code = f"u{code[1]}"  # registers are unsigned: no view is needed
    first, second = (b.read(operand, code) for operand in i.operands[1:3])
    if "ftz" in i.op:
        first, second = (b.assign(f"ftz({value})") for value in (first, second))
    if how in _OPERATORS or (how == "ne" and code[0] != "f"):
        return f"{first} {_OPERATORS.get(how, '!=')} {second}"
    return f"compare({how!r}, {first}, {second})"


def _combined(b: BlockWriter, i: Instruction, value: str) -> str:
    """Return a predicate, combined with the last source if the instruction has an operator."""
    operator = next((part for part in i.op[2:] if part in _LOGIC), None)
    return f"({value}) {_LOGIC[operator]} {b.read(i.operands[3], '?')}" if operator else value


@emits("setp", modifiers=_COMPARISONS)
def _setp(b: BlockWriter, i: Instruction) -> None:
    result, target = b.assign(_compared(b, i)), i.operands[0]
    targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
    values = [_combined(b, i, value) for value in (result, f"~{result}")]
    for operand, value in zip(targets, values, strict=False):
        b.write(operand, value, "?")


@emits("set", modifiers=_COMPARISONS)
def _set(b: BlockWriter, i: Instruction) -> None:
    target, kind = i.op[-2:]
    if kind in ("f16x2", "bf16x2"):
        _set_pair(b, i, target, kind)
        return
    code = "u2" if target in _HALVES else CODES[target]
    true = _TRUE.get(target if target in _HALVES else code, -1)
    yes, no = b.names.constant(true, code), b.names.constant(0, code)
    b.write(i.operands[0], f"select({_combined(b, i, _compared(b, i))}, {yes}, {no})", code)


def _set_pair(b: BlockWriter, i: Instruction, target: str, kind: str) -> None:
    if "ftz" in i.op or len(i.operands) > 3:
        raise CannotSimulate("a comparison of this kind")
    first, second = (b.read(operand, "u4") for operand in i.operands[1:])
    true = b.names.constant(_TRUE[kind[:-2]] if target == kind else -1, "u2")
    b.write(i.operands[0], f"set_pairs({i.op[1]!r}, {first}, {second}, {kind!r}, {true})", "u4")


@emits("selp")
def _selp(b: BlockWriter, i: Instruction) -> None:
    code = type_code(i)
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    b.write(i.operands[0], f"select({b.read(i.operands[3], '?')}, {first}, {second})", code)


@emits("slct", modifiers="ftz")
def _slct(b: BlockWriter, i: Instruction) -> None:
    code, control = CODES[i.op[-2]], b.read(i.operands[3], type_code(i))
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    if "ftz" in i.op:
        control = f"ftz({control})"
    b.write(i.operands[0], f"select({control} >= 0, {first}, {second})", code)
