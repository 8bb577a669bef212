"""Matrix instructions as calls of `warps.tensor_cores`, with the supported shapes and types."""

import re
from collections.abc import Sequence
from typing import NoReturn

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Address, Instruction, Operand, items_of
from pytest_gpulab.devices.simulated.translation.control.graph import space_of
from pytest_gpulab.devices.simulated.translation.fragments import ELEMENTS, Fragment, accesses

from .block import BlockWriter, emits

_SHAPE = re.compile(r"m\d+n\d+(k\d+)?")
_HALVES, _BYTES = ("f16", "bf16"), ("s8", "u8")
_FACTORS = {
    "wmma": {
        **dict.fromkeys(("m16n16k16", "m32n8k16", "m8n32k16"), (*_HALVES, *_BYTES)),
        "m16n16k8": ("tf32",), "m8n8k4": ("f64",),
    },
    "mma": {
        "m16n8k4": ("tf32", "f64"), "m16n8k8": (*_HALVES, "tf32", "f64"), "m16n8k16": (*_HALVES, *_BYTES, "f64"),
        "m16n8k32": _BYTES, "m8n8k16": _BYTES, "m8n8k4": ("f64",),
    },
}  # fmt: skip
"""Types of A and B by shape."""
_SUMS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",),
}  # fmt: skip
"""Types of C and D by type of A."""
_FEATURES = {
    "s4": "4-bit integers", "u4": "4-bit integers", "b1": "single bits",
    **dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), "floats of at most 8 bits"),
    "sp": "sparse matrices", "sp__ordered_metadata": "sparse matrices", "block_scale": "scaled blocks",
}  # fmt: skip


@emits("wgmma", "tcgen05", modifiers=None)
def _of_several_warps(b: BlockWriter, i: Instruction) -> None:
    what = "warpgroup instructions (wgmma)" if i.op[0] == "wgmma" else "tensor memory (tcgen05)"
    raise CannotSimulate(f"tensor cores: {what}", i.where)


@emits("wmma", modifiers=None)
def _wmma(b: BlockWriter, i: Instruction) -> None:
    if i.op[1] == "mma":
        _multiply(b, i)
    else:
        _move_matrix(b, i)


@emits("mma", modifiers=None)
def _multiply(b: BlockWriter, i: Instruction) -> None:
    """Write `wmma.mma` and `mma`."""
    shape, kinds = _words(i, "mma sync aligned row col satfinite rn")
    if len(kinds) == 2:  # for halves, the types of D and C
        kinds = [kinds[0], "f16", "f16", kinds[1]]
    target, *factors = i.operands
    result, first, second, addend = kinds
    is_known = first in _FACTORS[i.op[0]].get(shape, ()) and {result, addend} <= {*_SUMS[first]}
    layouts = [word for word in i.op if word in ("row", "col")]
    if not is_known or not _go_together(first, second) or (i.op[0] == "mma" and layouts != ["row", "col"]):
        _refuse(i, shape, ".".join(kinds))
    parts = [Fragment(matrix, shape, kind) for matrix, kind in zip("dabc", kinds, strict=True)]
    for part, operand in zip(parts, i.operands, strict=True):
        _check_count(i, part, operand)
    lists = ", ".join(_read_all(b, operand, part.register) for part, operand in zip(parts[1:], factors, strict=True))
    site = b.names.site("tensor", "multiplication", 0, i)
    call = f"multiply(w, L, {site}, {shape!r}, {tuple(kinds)!r}, {'satfinite' in i.op}, {lists})"
    b.write_all(target, call, parts[0].register)


def _go_together(first: str, second: str) -> bool:
    """Return whether A and B may have these types: equal ones, or 8-bit integers of either signedness."""
    return first == second or {first, second} == {*_BYTES}


def _move_matrix(b: BlockWriter, i: Instruction) -> None:
    """Write `wmma.load` and `wmma.store`."""
    shape, kinds = _words(i, f"load store a b c d sync aligned row col {_PLACES}")
    matrix, kind = i.op[2], kinds[0]
    is_load = i.op[1] == "load"
    factors = _FACTORS["wmma"].get(shape, ())
    known = factors if matrix in ("a", "b") else [kind for factor in factors for kind in _SUMS[factor]]
    if kind not in known or len(kinds) > 1:
        _refuse(i, shape, ".".join(kinds))
    registers, address = i.operands[:2] if is_load else i.operands[1::-1]
    part = Fragment(matrix, shape, kind)
    _check_count(i, part, registers)
    if not isinstance(address, Address):
        raise CannotSimulate("an address of this form")
    layout, space = "row" if "row" in i.op else "col", space_of(i)
    default = b.names.constant(part.extents[layout == "row"], "u4")
    stride = b.read(i.operands[2], "u4") if len(i.operands) > 2 else default
    nbytes = accesses(part, layout, space == "shared").count * part.nbytes
    site = b.names.site(space, "read" if is_load else "write", nbytes, i)
    call = f"{i.op[1]}_matrix(w, L, {site}, {(matrix, shape, kind)!r}, {layout!r}"
    if is_load:
        call += f", {len(items_of(registers))}, {b.address(address)}, {stride})"
        b.write_all(registers, call, part.register)
    else:
        b.lines.append(f"{call}, {b.address(address)}, {stride}, {_read_all(b, registers, part.register)})")


_PLACES = "global shared shared__cta"


@emits("ldmatrix", "stmatrix", modifiers=None)
def _move_tiles(b: BlockWriter, i: Instruction) -> None:
    shape, kinds = _words(i, f"sync aligned x1 x2 x4 trans {_PLACES}", ("b16",))
    is_load = i.op[0] == "ldmatrix"
    registers, address = i.operands if is_load else i.operands[::-1]
    tiles = next((int(word[1]) for word in i.op if word in ("x1", "x2", "x4")), 0)
    if (shape, kinds) != ("m8n8", ["b16"]) or tiles != len(items_of(registers)) or not isinstance(address, Address):
        _refuse(i, shape, ".".join(kinds))
    site = b.names.site(space_of(i), "read" if is_load else "write", 16, i)
    call = f"{'load' if is_load else 'store'}_tiles(w, L, {site}, {tiles}, {'trans' in i.op}, {b.address(address)}"
    if is_load:
        b.write_all(registers, f"{call})", "u4")
    else:
        b.lines.append(f"{call}, {_read_all(b, registers, 'u4')})")


@emits("movmatrix", modifiers=None)
def _transpose(b: BlockWriter, i: Instruction) -> None:
    shape, kinds = _words(i, "sync aligned trans", ("b16",))
    if (shape, kinds) != ("m8n8", ["b16"]) or "trans" not in i.op:
        _refuse(i, shape, ".".join(kinds))
    site = b.names.site("tensor", "transposition", 0, i)
    b.write(i.operands[0], f"transpose_tile(w, L, {site}, {b.read(i.operands[1], 'u4')})", "u4")


def _words(i: Instruction, known: str, types: Sequence[str] = tuple(ELEMENTS)) -> tuple[str, list[str]]:
    """Return the shape and the types in an opcode; raise CannotSimulate for a word that is not supported."""
    shape, kinds = "", []
    feature = next((_FEATURES[word] for word in i.op if word in _FEATURES), None)
    for word in i.op[1:]:
        if _SHAPE.fullmatch(word):
            shape = word
        elif word in types:
            kinds.append(word)
        elif word not in known.split():
            raise CannotSimulate(f"tensor cores: {feature or f'the modifier .{word} of {i.op[0]}'}", i.where)
    return shape, kinds


def _refuse(i: Instruction, shape: str, kinds: str) -> NoReturn:
    name = ".".join(i.op[:2]) if i.op[0] == "wmma" else i.op[0]
    raise CannotSimulate(f"tensor cores: {name} of shape {shape or '?'} and type {kinds or '?'}", i.where)


def _check_count(i: Instruction, part: Fragment, operand: Operand) -> None:
    """Check the number of registers per lane; `wmma` has 8 for factors of halves in each shape."""
    is_repeated = i.op[0] == "wmma" and part.kind == "f16" and part.matrix in "ab"
    given, needed = len(items_of(operand)), 8 if is_repeated else part.registers
    if given != needed:
        registers = "1 register" if given == 1 else f"{given} registers"
        raise CannotSimulate(f"tensor cores: {registers} instead of {needed} in {i.op[0]}", i.where)


def _read_all(b: BlockWriter, operand: Operand, code: str) -> str:
    return f"[{', '.join(b.read(item, code) for item in items_of(operand))}]"
