"""Conversions: `cvt`, and addresses of other windows and blocks."""

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction

from .block import CODES, BlockWriter, emits, rounding_mode, type_code

_WINDOW_BITS = 40  # the bits above identify the windows of shared and local memory


@emits("isspacep", modifiers="global shared local shared__cta shared__cluster")
def _isspacep(b: BlockWriter, i: Instruction) -> None:
    space, _, _ = i.op[1].partition("__")
    window = f"({b.read(i.operands[1], 'u8')} >> {b.names.constant(_WINDOW_BITS, 'u8')})"
    shared, local = (
        b.names.constant(b.names.addresses[f"{name} window"] >> _WINDOW_BITS, "u8") for name in ("shared", "local")
    )
    within = {
        "shared": f"{window} == {shared}",
        "local": f"{window} == {local}",
        "global": f"({window} != {shared}) & ({window} != {local})",
    }
    b.write(i.operands[0], within[space], "?")


@emits("mapa", "getctarank", modifiers="shared__cluster")
def _mapa(b: BlockWriter, i: Instruction) -> None:
    """Write the address of the block's own shared memory: the block is a cluster of its own, with rank 0."""
    if i.op[0] == "getctarank":
        b.write(i.operands[0], b.names.constant(0, "u4"), "u4")
        return
    target, address, rank = i.operands
    b.lines.append(f"if np.any({b.read(rank, 'u4')}): raise {b.names.refusal('thread block clusters', i.where)}()")
    b.write(target, b.read(address, type_code(i)), type_code(i))


@emits("cvt", modifiers="rni rzi rmi rpi rn rz rm rp rna ftz sat satfinite relu tf32")
def _cvt(b: BlockWriter, i: Instruction) -> None:
    target, source = i.op[-2:]
    if "satfinite" in i.op or source in _FLOAT8:
        _cvt_float8(b, i, target, source)
        return
    if "tf32" in i.op or "rna" in i.op:
        if (target, source) != ("tf32", "f32") or (mode := i.op[1]) not in ("rna", "rn", "rz") or len(i.op) > 4:
            raise CannotSimulate("a conversion of this kind")
        b.write(i.operands[0], f"to_tf32({b.read(i.operands[1], 'f4')}, {mode!r})", "u4")
        return
    if target in ("f16x2", "bf16x2"):
        high, low = (_to_half(i, b.read(operand, "f4"), target[:-2]) for operand in i.operands[1:])
        shift = b.names.constant(16, "u4")
        b.write(i.operands[0], f"({high}.astype(u4) << {shift}) | {low}.astype(u4)", "u4")
        return
    half = source in _HALVES
    code = "f4" if half else CODES[source]
    value = f"unpack({b.read(i.operands[1], 'u2')}, {source!r})" if half else b.read(i.operands[1], code)
    if code == "f4" and "ftz" in i.op and not half:
        value = f"ftz({value})"
    if target in _HALVES:
        if code[0] != "f":
            value = _exact_float(value, target, code)
        b.write(i.operands[0], _to_half(i, value, target), "u2")
    else:
        expression = _conversion(i, value, CODES[target], code)
        b.write(i.operands[0], f"canonical({expression})" if half and target == "f32" else expression, CODES[target])


_HALVES = ("f16", "bf16")
_FLOAT8 = ("e4m3x2", "e5m2x2")


def _cvt_float8(b: BlockWriter, i: Instruction, target: str, source: str) -> None:
    """Convert pairs of 8-bit floats; `satfinite` is the only mode."""
    if i.op == ("cvt", "rn", "f16x2", source):
        b.write(i.operands[0], f"float8_to_half({b.read(i.operands[1], 'u2')}, {source[:4]!r})", "u4")
        return
    if target not in _FLOAT8 or source not in ("f32", "f16x2") or i.op[1:-2] != ("rn", "satfinite"):
        raise CannotSimulate("a conversion of this kind")
    if source == "f32":
        high, low = (b.read(operand, "f4") for operand in i.operands[1:])
    else:
        pair = b.read(i.operands[1], "u4")
        low, high = (f"({pair} >> {b.names.constant(shift, 'u4')}).astype(u2).view(f2)" for shift in (0, 16))
    parts = [f"to_float8({part}, {target[:4]!r}).astype(u2)" for part in (low, high)]
    b.write(i.operands[0], f"{parts[0]} | ({parts[1]} << {b.names.constant(8, 'u2')})", "u2")


def _integral(i: Instruction) -> str | None:
    return next((part for part in i.op if part in ("rni", "rzi", "rmi", "rpi")), None)


def _to_half(i: Instruction, value: str, target: str) -> str:
    """Write a conversion of a float to 16 bits."""
    mode = rounding_mode(i)
    if target == "bf16" and mode not in ("rn", "rz"):
        raise CannotSimulate(f"rounding mode {mode} to bfloat16")
    if integral := _integral(i):
        value = f"round_integral({value}, {integral!r})"
    if "sat" in i.op:
        value = f"saturate({value})"
    elif "relu" in i.op:
        value = f"np.maximum({value}, 0)"
    return f"pack({value}, {target!r}, {mode!r})"


def _exact_float(value: str, target: str, code: str) -> str:
    """Return an expression for an integer as float64, before it is rounded to 16 bits."""
    if code[1] == "8" and target == "bf16":
        raise CannotSimulate("a 64-bit integer to bfloat16")
    return f"{value}.astype(f8)"  # exact: 64-bit integers that float64 rounds are infinite in half precision


def _conversion(i: Instruction, value: str, target: str, source: str) -> str:
    integral, mode = _integral(i), rounding_mode(i)
    if source[0] != "f" and target[0] != "f":
        return f"int_to_int({value}, {target}, {'sat' in i.op})"
    if target[0] != "f":
        if integral is None:
            raise CannotSimulate("a conversion without a rounding mode")
        return f"float_to_int({value}, {target}, {integral!r})"
    if source[0] != "f":
        expression = f"int_to_float({value}, {target}, {mode!r})"
    else:
        expression = f"round_integral({value}, {integral!r})" if integral else value
        if source == "f8" and target == "f4":
            expression = f"narrow({expression}, {mode!r})"
        elif target != source:
            expression = f"({expression}).astype({target})"
        if "ftz" in i.op and target == "f4":
            expression = f"ftz({expression})"
    return f"saturate({expression})" if "sat" in i.op else expression
