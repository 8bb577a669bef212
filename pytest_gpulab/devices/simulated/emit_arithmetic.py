"""Integer, float, comparison, logic, move and conversion opcodes as Python expressions.

The expressions call `arithmetic`, whose functions are in scope of the generated code by their names.
"""

from __future__ import annotations

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.emit import CODES, BlockWriter, emits
from pytest_gpulab.devices.simulated.ptx import Imm, Instruction, Operand, Pair, Sym, Vector

_DIRECTED = {"rz", "rm", "rp"}


def _type(instruction: Instruction) -> str:
    return CODES[instruction.op[-1]]


def _write(b: BlockWriter, instruction: Instruction, expression: str, code: str) -> None:
    """Write a result, honouring `.ftz` and `.sat` of float32."""
    if code == "f4" and "ftz" in instruction.op:
        expression = f"ftz({expression})"
    if "sat" in instruction.op:
        expression = f"saturate({expression})"
    b.write(instruction.operands[0], expression, code)


def _operands(b: BlockWriter, instruction: Instruction, code: str) -> list[str]:
    values = [b.read(operand, code) for operand in instruction.operands[1:]]
    if code == "f4" and "ftz" in instruction.op:
        values = [b.assign(f"ftz({value})") for value in values]
    return values


def _mode(instruction: Instruction) -> str:
    return next((part for part in instruction.op if part in _DIRECTED), "rn")


@emits("add", "sub", "mul", "div", "min", "max", "fma", "mad", "and", "or", "xor", "rem", "neg", "abs", "not", "sqrt", "rcp")
def _typed(b: BlockWriter, i: Instruction) -> None:
    kind = i.op[-1]
    if kind == "f16x2":
        _packed_half(b, i)
    elif kind == "f16":
        expression = _HALF[i.op[0]]
        b.write(i.operands[0], f"in_half({expression}, {', '.join(_operands(b, i, 'f2'))})", "f2")
    elif CODES[kind][0] == "f":
        _float(b, i, CODES[kind])
    else:
        _integer(b, i, CODES[kind])


_HALF = {
    "add": "lambda a, b: a + b", "sub": "lambda a, b: a - b", "mul": "lambda a, b: a * b", "neg": "lambda a: -a",
    "abs": "lambda a: np.abs(a)", "min": "minimum", "max": "maximum", "div": "lambda a, b: a / b",
    "fma": "lambda a, b, c: a.astype(f8) * b.astype(f8) + c.astype(f8)",
}  # fmt: skip


def _packed_half(b: BlockWriter, i: Instruction) -> None:
    b.write(i.operands[0], f"half_pairs({_HALF[i.op[0]]}, {', '.join(_operands(b, i, 'u4'))})", "u4")


def _float(b: BlockWriter, i: Instruction, code: str) -> None:
    name, mode = i.op[0], _mode(i)
    if name == "mad":
        name = "fma"
    if mode != "rn" and name in ("add", "sub", "mul", "fma"):
        _directed_float(b, i, name, code, mode)
    elif name == "fma" and code == "f4" and "ftz" not in i.op:
        first, second, third = (b.as_f64(operand) for operand in i.operands[1:])
        _write(b, i, f"fma_f32({first}, {second}, {third})", code)
    elif mode != "rn" and "approx" not in i.op:
        raise CannotSimulate(f"rounding mode {mode}")
    else:
        _write(b, i, _FLOAT[name].format(*_operands(b, i, code), code=code, one=b.names.constant(*_ONE[code])), code)


_ONE = {"f4": (0x3F800000, "f4"), "f8": (0x3FF0000000000000, "f8")}
_FLOAT = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "min": "minimum({0}, {1})",
    "max": "maximum({0}, {1})", "neg": "-{0}", "abs": "np.abs({0})", "sqrt": "np.sqrt({0})", "rcp": "{one} / {0}",
    "fma": "fma_f64({0}.astype(f8), {1}.astype(f8), {2}.astype(f8)).astype({code})",
}  # fmt: skip


def _directed_float(b: BlockWriter, i: Instruction, name: str, code: str, mode: str) -> None:
    double = code == "f8"
    values = [b.read(operand, "f8") if double else b.as_f64(operand) for operand in i.operands[1:]]
    if name == "sub":
        name, values[1] = "add", f"-{values[1]}"
    third = values[2] if name == "fma" else "None"
    function = "directed_f64" if double else "directed"
    _write(b, i, f"{function}({name!r}, {values[0]}, {values[1]}, {third}, {mode!r})", code)


def _integer(b: BlockWriter, i: Instruction, code: str) -> None:
    name = i.op[0]
    if name in ("add", "sub", "mad") and "cc" in i.op:
        _carry(b, i, code, borrow=None)
    elif name == "mul" or name == "mad":
        _multiply(b, i, code)
    elif "sat" in i.op:
        first, second = (b.read(operand, code) for operand in i.operands[1:])
        b.write(i.operands[0], f"saturated({first}, {second}, {name == 'sub'})", code)
    else:
        if name in _SIGNLESS and code != "?":
            code = f"u{code[1]}"  # registers are unsigned: no view is needed
        operands = [b.read(operand, code) for operand in i.operands[1:]]
        b.write(i.operands[0], _INTEGER[name].format(*operands), code)


_SIGNLESS = {"add", "sub", "and", "or", "xor", "not", "neg"}
_INTEGER = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}",
    "neg": "-{0}", "abs": "np.abs({0})", "min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})",
    "div": "div_int({0}, {1})", "rem": "rem_int({0}, {1})",
}  # fmt: skip


def _multiply(b: BlockWriter, i: Instruction, code: str) -> None:
    if "lo" in i.op:
        code = f"u{code[1]}"
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    result = code
    if "wide" in i.op:
        result = f"{code[0]}{2 * int(code[1])}"
        expression = f"mul_wide({first}, {second})"
    elif "hi" in i.op:
        expression = f"mul_hi({first}, {second})"
    else:
        expression = f"{first} * {second}"
    if i.op[0] == "mad":
        expression = f"{expression} + {b.read(i.operands[3], result)}"
    b.write(i.operands[0], expression, result)


@emits("addc", "subc", "madc")
def _with_carry(b: BlockWriter, i: Instruction) -> None:
    _carry(b, i, _type(i), "carry")


def _carry(b: BlockWriter, i: Instruction, code: str, borrow: str | None) -> None:
    """The carry flag is a local of the block: the compiler never lets it live across a jump."""
    unsigned = f"u{code[1]}"
    if i.op[0] in ("mad", "madc"):
        first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
        product = f"mul_hi({first}, {second})" if "hi" in i.op else f"({first} * {second})"
        operands = [f"{product}.view({unsigned})", b.read(i.operands[3], unsigned)]
    else:
        operands = [b.read(operand, unsigned) for operand in i.operands[1:]]
    function = "carry_sub" if i.op[0] in ("sub", "subc") else "carry_add"
    carry_in = borrow or b.names.constant(0, "u4")
    total = b.temporary()
    b.lines.append(f"{total}, carry = {function}({operands[0]}, {operands[1]}, {carry_in})")
    b.write(i.operands[0], total, unsigned)


@emits("mul24", "mad24")
def _multiply24(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    eight = b.names.constant(8, code)
    first, second = (f"(({b.read(o, code)} << {eight}) >> {eight})" for o in i.operands[1:3])
    product = f"mul_wide({first}, {second})"
    wide = f"{code[0]}8"
    shifted = f"{product} >> {b.names.constant(16, wide)}" if "hi" in i.op else product
    expression = f"({shifted}).astype({code})"
    if i.op[0] == "mad24":
        expression = f"{expression} + {b.read(i.operands[3], code)}"
    b.write(i.operands[0], expression, code)


@emits("sad")
def _sad(b: BlockWriter, i: Instruction) -> None:
    first, second, third = (b.read(operand, _type(i)) for operand in i.operands[1:])
    unsigned = f"u{_type(i)[1]}"
    difference = f"(np.maximum({first}, {second}) - np.minimum({first}, {second})).view({unsigned})"
    b.write(i.operands[0], f"{third}.view({unsigned}) + {difference}", unsigned)


@emits("shl", "shr")
def _shift(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    if i.op[0] == "shl":
        code = f"u{code[1]}"
    value, amount = b.read(i.operands[1], code), i.operands[2]
    width = 8 * int(code[1])
    if isinstance(amount, Imm) and 0 <= amount.value < width:
        operator = "<<" if i.op[0] == "shl" else ">>"
        expression = f"{value} {operator} {b.names.constant(amount.value, code)}"
    else:
        expression = f"{i.op[0]}({value}, {b.read(amount, 'u4')})"
    b.write(i.operands[0], expression, code)


@emits("shf")
def _funnel(b: BlockWriter, i: Instruction) -> None:
    low, high, amount = (b.read(operand, "u4") for operand in i.operands[1:])
    b.write(i.operands[0], f"funnel({low}, {high}, {amount}, {i.op[1] == 'l'}, {i.op[2] == 'wrap'})", "u4")


@emits("brev", "popc", "clz", "bfind")
def _bits(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    value = b.read(i.operands[1], code)
    extra = f", {'shiftamt' in i.op}" if i.op[0] == "bfind" else ""
    b.write(i.operands[0], f"{i.op[0]}({value}{extra})", code if i.op[0] == "brev" else "u4")


@emits("bfe", "bfi")
def _field(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    values = [b.read(operand, code) for operand in i.operands[1:-2]]
    counts = [b.read(operand, "u4") for operand in i.operands[-2:]]
    b.write(i.operands[0], f"{i.op[0]}({', '.join(values + counts)})", code)


@emits("bmsk")
def _bmsk(b: BlockWriter, i: Instruction) -> None:
    start, length = (b.read(operand, "u4") for operand in i.operands[1:])
    b.write(i.operands[0], f"bmsk({start}, {length}, {'wrap' in i.op})", "u4")


@emits("prmt")
def _prmt(b: BlockWriter, i: Instruction) -> None:
    values = ", ".join(b.read(operand, "u4") for operand in i.operands[1:])
    mode = i.op[2] if len(i.op) > 2 else ""
    b.write(i.operands[0], f"prmt({values}, {mode!r})", "u4")


@emits("lop3")
def _lop3(b: BlockWriter, i: Instruction) -> None:
    values = ", ".join(b.read(operand, "u4") for operand in i.operands[1:4])
    table = i.operands[4]
    if not isinstance(table, Imm):
        raise CannotSimulate("a lookup table in a register")
    b.write(i.operands[0], f"lop3({values}, {table.value})", "u4")


@emits("dp4a", "dp2a")
def _dot(b: BlockWriter, i: Instruction) -> None:
    values = ", ".join(b.read(operand, "u4") for operand in i.operands[1:])
    halves = -1 if i.op[0] == "dp4a" else int("hi" in i.op)
    signed = tuple(part == "s32" for part in i.op[-2:])
    b.write(i.operands[0], f"dot4({values}, {signed}, {halves})", "u4")


_APPROXIMATE = {
    "sin": "np.sin({0})", "cos": "np.cos({0})", "ex2": "np.exp2({0})", "lg2": "np.log2({0})", "tanh": "np.tanh({0})",
    "rsqrt": "{one} / np.sqrt({0})",
}  # fmt: skip


@emits(*_APPROXIMATE)
def _approximate(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    if code == "f2":
        b.write(i.operands[0], f"in_half(lambda a: {_APPROXIMATE[i.op[0]].format('a', one='f4.type(1)')}, "
                f"{b.read(i.operands[1], 'f2')})", "f2")  # fmt: skip
        return
    one = b.names.constant(*_ONE[code])
    _write(b, i, _APPROXIMATE[i.op[0]].format(*_operands(b, i, code), one=one), code)


@emits("copysign")
def _copysign(b: BlockWriter, i: Instruction) -> None:
    sign, magnitude = (b.read(operand, _type(i)) for operand in i.operands[1:])
    b.write(i.operands[0], f"np.copysign({magnitude}, {sign})", _type(i))


@emits("testp")
def _testp(b: BlockWriter, i: Instruction) -> None:
    tests = {
        "finite": "np.isfinite({0})", "infinite": "np.isinf({0})", "number": "~np.isnan({0})", "notanumber": "np.isnan({0})",
        "normal": "np.isfinite({0}) & (np.abs({0}) >= np.finfo({0}.dtype).tiny)",
        "subnormal": "({0} != 0) & (np.abs({0}) < np.finfo({0}.dtype).tiny)",
    }  # fmt: skip
    b.write(i.operands[0], tests[i.op[1]].format(b.read(i.operands[1], _type(i))), "?")


@emits("setp")
def _setp(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    if i.op[1] in ("eq", "ne") and code[0] == "i":
        code = f"u{code[1]}"
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    result = b.assign(_comparison(i.op[1], first, second, code))
    target = i.operands[0]
    combine = next((part for part in i.op[2:] if part in ("and", "or", "xor")), None)
    other = b.read(i.operands[3], "?") if combine else ""
    for operand, value in zip(_both(target), (result, f"~{result}"), strict=False):
        b.write(operand, f"{value} {_LOGIC[combine]} {other}" if combine else value, "?")


_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_OPERATORS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def _both(target: Operand) -> tuple[Operand, ...]:
    return (target.first, target.second) if isinstance(target, Pair) else (target,)


def _comparison(how: str, first: str, second: str, code: str) -> str:
    if code == "f2":
        return f"compare({how!r}, {first}.astype(f4), {second}.astype(f4))"
    if how == "ne" and code[0] != "f":
        return f"{first} != {second}"
    if how in _OPERATORS:
        return f"{first} {_OPERATORS[how]} {second}"
    return f"compare({how!r}, {first}, {second})"


@emits("set")
def _set(b: BlockWriter, i: Instruction) -> None:
    code, result = _type(i), CODES[i.op[-2]]
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    true = _ONE[result][0] if result[0] == "f" else -1
    yes, no = b.names.constant(true, result), b.names.constant(0, result)
    b.write(i.operands[0], f"select({_comparison(i.op[1], first, second, code)}, {yes}, {no})", result)


@emits("selp")
def _selp(b: BlockWriter, i: Instruction) -> None:
    code = _type(i)
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    b.write(i.operands[0], f"select({b.read(i.operands[3], '?')}, {first}, {second})", code)


@emits("slct")
def _slct(b: BlockWriter, i: Instruction) -> None:
    code, control = CODES[i.op[-2]], _type(i)
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    b.write(i.operands[0], f"select({b.read(i.operands[3], control)} >= 0, {first}, {second})", code)


@emits("mov", "cvta")
def _mov(b: BlockWriter, i: Instruction) -> None:
    target, source = i.operands
    code = _type(i)
    if isinstance(source, Vector):
        _pack(b, target, source, code)
    elif isinstance(target, Vector):
        _unpack(b, target, source, code)
    elif i.op[0] == "cvta":
        _convert_address(b, i, code)
    else:
        b.write(target, b.read(source, code), code)


def _pack(b: BlockWriter, target: Operand, source: Vector, code: str) -> None:
    size = int(code[1]) // len(source.items)
    parts = []
    for k, item in enumerate(source.items):
        part = f"{b.read(item, f'u{size}')}.astype(u{code[1]})"
        parts.append(f"({part} << {b.names.constant(8 * size * k, f'u{code[1]}')})" if k else part)
    b.write(target, " | ".join(parts), f"u{code[1]}")


def _unpack(b: BlockWriter, target: Vector, source: Operand, code: str) -> None:
    unsigned = f"u{code[1]}"
    whole = b.read(source, unsigned)
    size = int(code[1]) // len(target.items)
    for k, item in enumerate(target.items):
        if isinstance(item, Sym):  # `_`: not wanted
            continue
        shifted = f"({whole} >> {b.names.constant(8 * size * k, unsigned)})" if k else whole
        b.write(item, f"{shifted}.astype(u{size})", f"u{size}")


def _convert_address(b: BlockWriter, i: Instruction, code: str) -> None:
    space = next(part for part in i.op[1:] if part != "to")
    space, _, _ = space.partition("__")
    value = b.read(i.operands[1], "u8")
    if space in ("shared", "local"):
        window = b.names.constant(b.names.addresses[f"{space} window"], "u8")
        value = f"{value} - {window}" if "to" in i.op else f"{value} + {window}"
    b.write(i.operands[0], value, code)


@emits("isspacep")
def _isspacep(b: BlockWriter, i: Instruction) -> None:
    space, _, _ = i.op[1].partition("__")
    b.write(i.operands[0], f"in_space({space!r}, {b.read(i.operands[1], 'u8')})", "?")


@emits("cvt")
def _cvt(b: BlockWriter, i: Instruction) -> None:
    if i.op[-2] == "f16x2":
        high, low = (f"{b.read(operand, 'f4')}.astype(f2).view(u2).astype(u4)" for operand in i.operands[1:])
        b.write(i.operands[0], f"({high} << {b.names.constant(16, 'u4')}) | {low}", "u4")
        return
    target, source = CODES[i.op[-2]], _type(i)
    value = b.read(i.operands[1], source)
    if source == "f4" and "ftz" in i.op:
        value = f"ftz({value})"
    b.write(i.operands[0], _conversion(i, value, target, source), target)


def _conversion(i: Instruction, value: str, target: str, source: str) -> str:
    integral = next((part for part in i.op if part in ("rni", "rzi", "rmi", "rpi")), None)
    mode = _mode(i)
    if target[0] == source[0] == "f":
        expression = f"round_integral({value}, {integral!r})" if integral else value
        if source == "f8" and target == "f4" and mode != "rn":
            expression = f"np.asarray(narrow({expression}, {mode!r}))[()]"
        elif target == "f2" and mode != "rn":
            raise CannotSimulate(f"rounding mode {mode} to half precision")
        elif target != source:
            expression = f"({expression}).astype({target})"
        if "ftz" in i.op and target == "f4":
            expression = f"ftz({expression})"
        return f"saturate({expression})" if "sat" in i.op else expression
    if source[0] == "f":
        return f"float_to_int({value}, {target}, {integral!r})"
    if target[0] == "f":
        expression = f"int_to_float({value}, {target}, {mode!r})"
        return f"saturate({expression})" if "sat" in i.op else expression
    return f"int_to_int({value}, {target}, {'sat' in i.op})"
