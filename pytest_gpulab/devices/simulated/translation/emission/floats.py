"""Float opcodes as Python expressions: float32, float64, and the 16-bit floats alone and in pairs.

The expressions call functions of `floats`, `rounding` and `halves`; they are in the namespace of the generated code.
"""

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction

from .block import DIRECTED, PLAIN_FLOAT, BlockWriter, emits, refuse_others, rounding_mode, type_code

_MODIFIERS = frozenset({"rn", "ftz", "sat", "approx", "full", "NaN", "xorsign", "abs"} | DIRECTED)
_ONE = {"f4": (0x3F800000, "f4"), "f8": (0x3FF0000000000000, "f8")}
_ROUNDED = {name: name for name in ("add", "mul", "fma", "div", "sqrt")} | {"sub": "add", "mad": "fma", "rcp": "div"}
"""Opcodes with rounding modes, and the corresponding operation of `rounding`."""


def _operands(b: BlockWriter, i: Instruction, code: str) -> list[str]:
    values = [b.read(operand, code) for operand in i.operands[1:]]
    if "ftz" in i.op:
        values = [b.assign(f"ftz({value})") for value in values]
    return values


def _write(b: BlockWriter, i: Instruction, expression: str, code: str) -> None:
    b.write(i.operands[0], f"saturate({expression})" if "sat" in i.op else expression, code)


def write_float(b: BlockWriter, i: Instruction) -> None:
    """Write an operation on float32 or float64."""
    refuse_others(i, _MODIFIERS)
    name, code, mode, flush = i.op[0], type_code(i), rounding_mode(i), "ftz" in i.op
    if mode != "rn":
        _write(b, i, _directed(b, i, code, mode), code)
    elif name in ("fma", "mad") and code == "f4" and not flush:
        first, second, third = (b.as_f64(operand) for operand in i.operands[1:])
        _write(b, i, f"fma_f32({first}, {second}, {third})", code)
    elif name in ("min", "max"):
        _write(b, i, _extreme(i, *_operands(b, i, code)), code)
    elif name == "div" and "approx" in i.op:
        first, second = _operands(b, i, code)
        _write(b, i, f"div_approx({first}, {second}, {flush})", code)
    else:
        operands = _operands(b, i, code)
        one = [b.names.constant(*_ONE[code])] if name == "rcp" else []
        expression = _FLOAT[name] % (*one, *operands)
        _write(b, i, _flushed(b, i, expression, operands) if flush else expression, code)


_FLOAT = PLAIN_FLOAT | {
    "div": "%s / %s", "sqrt": "np.sqrt(%s)", "rcp": "%s / %s",
    "fma": "fma_f64(%s, %s, %s)", "mad": "fma_f64(%s, %s, %s)",
}  # fmt: skip


def _flushed(b: BlockWriter, i: Instruction, expression: str, operands: list[str]) -> str:
    """Flush the result. Its exact value decides where rounding could lift it into the normal range."""
    kind = _ROUNDED.get(i.op[0], "")
    if kind not in ("mul", "fma", "div") or type_code(i) == "f8":
        return f"ftz({expression})"
    if i.op[0] == "rcp":
        operands = [b.names.constant(*_ONE["f4"]), *operands]
    if kind == "fma":
        expression = f"fma_f32({', '.join(f'{operand}.astype(f8)' for operand in operands)})"
    return f"flushed({expression}, {kind!r}, {', '.join(operands)})"


def _directed(b: BlockWriter, i: Instruction, code: str, mode: str) -> str:
    """Write an operation in a directed rounding mode."""
    name, flush = i.op[0], "ftz" in i.op
    if flush:
        values = [f"{value}.astype(f8)" for value in _operands(b, i, code)]
    else:
        values = [b.read(operand, "f8") if code == "f8" else b.as_f64(operand) for operand in i.operands[1:]]
    if name == "sub":
        values[1] = f"-{values[1]}"
    elif name == "rcp":
        values.insert(0, b.names.constant(*_ONE["f8"]))
    if code == "f8":
        return f"rounded_f64({_ROUNDED[name]!r}, {mode!r}, {', '.join(values)})"
    return f"rounded_f32({_ROUNDED[name]!r}, {mode!r}, {flush}, {', '.join(values)})"


def _extreme(i: Instruction, first: str, second: str) -> str:
    """Return an expression for `min` or `max` with `.NaN` and `.xorsign.abs`."""
    function = f"{i.op[0]}_float"
    expression = f"{function}({first}, {second})"
    if "xorsign" in i.op:
        expression = f"xor_sign({function}(np.abs({first}), np.abs({second})), {first}, {second})"
    return f"or_nan({expression}, {first}, {second})" if "NaN" in i.op else expression


def write_half(b: BlockWriter, i: Instruction) -> None:
    """Write an operation on 16-bit floats."""
    refuse_others(i, {"rn", "ftz", "sat", "relu", "NaN", "xorsign", "abs"})
    if i.op[0] in ("min", "max"):
        function = f"lambda a, b: {_extreme(i, 'a', 'b')}"
    else:
        function = _HALF[i.op[0]]
    _halves(b, i, function)


_HALF = {
    "add": "lambda a, b: a + b", "sub": "lambda a, b: a - b", "mul": "lambda a, b: a * b", "neg": "lambda a: -a",
    "abs": "np.abs", "fma": "fma_half",
}  # fmt: skip


def _halves(b: BlockWriter, i: Instruction, function: str) -> None:
    kind = i.op[-1]
    code = "u4" if kind.endswith("x2") else "u2"
    values = ", ".join(b.read(operand, code) for operand in i.operands[1:])
    clamp = next((part for part in i.op if part in ("sat", "relu")), "")
    b.write(i.operands[0], f"halves({kind!r}, {function}, {values}, flush={'ftz' in i.op}, clamp={clamp!r})", code)


_APPROXIMATE = {
    "sin": "sin_approx({0})", "cos": "cos_approx({0})", "ex2": "np.exp2({0})", "lg2": "np.log2({0})",
    "tanh": "np.tanh({0})", "rsqrt": "{one} / np.sqrt({0})",
}  # fmt: skip


@emits(*_APPROXIMATE, modifiers="approx ftz")
def _approximate(b: BlockWriter, i: Instruction) -> None:
    if i.op[-1] in ("f16", "bf16", "f16x2", "bf16x2"):
        _halves(b, i, f"lambda a: {_APPROXIMATE[i.op[0]].format('a')}")
        return
    code = type_code(i)
    one = b.names.constant(*_ONE[code])
    expression = _APPROXIMATE[i.op[0]].format(*_operands(b, i, code), one=one)
    _write(b, i, f"ftz({expression})" if "ftz" in i.op else expression, code)


@emits("copysign")
def _copysign(b: BlockWriter, i: Instruction) -> None:
    sign, magnitude = (b.read(operand, type_code(i)) for operand in i.operands[1:])
    b.write(i.operands[0], f"np.copysign({magnitude}, {sign})", type_code(i))


@emits("testp", modifiers="finite infinite number notanumber normal subnormal")
def _testp(b: BlockWriter, i: Instruction) -> None:
    b.write(i.operands[0], f"has_class({b.read(i.operands[1], type_code(i))}, {i.op[1]!r})", "?")
