"""Integer and bit opcodes as Python expressions, and those that floats share with them: comparisons, selections.

The expressions call the functions of `integers` by name; they are in the namespace of the generated code.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Imm, Instruction, Pair

from .block import CODES, PLAIN_FLOAT, BlockWriter, emits, refuse_others, type_code

_UNARY, _TERNARY = ("neg", "abs", "not", "sqrt", "rcp"), ("fma", "mad")
_BINARY = ("add", "sub", "mul", "div", "min", "max", "and", "or", "xor", "rem")
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_OPERATORS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_HOW = {*_OPERATORS, "ne", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
_COMPARISONS = f"{' '.join(_HOW)} {' '.join(_LOGIC)} ftz"
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_TRUE = {"f4": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}  # 1.0; integers have all bits set
_OPERANDS = dict.fromkeys(_UNARY, 2) | dict.fromkeys(_BINARY, 3) | dict.fromkeys(_TERNARY, 4)


@emits(*_OPERANDS, modifiers="rn rz rm rp ftz sat relu approx full NaN xorsign abs lo hi wide cc")
def _typed(b: BlockWriter, i: Instruction) -> None:
    op, operands = i.op, i.operands
    if (form := _plain(op)) is not None and len(operands) == form[0]:  # most of a long kernel
        _, expression, code = form
        b.write(operands[0], expression % tuple([b.read(operand, code) for operand in operands[1:]]), code)
        return
    if op[-1] == "relu":  # as the headers write it
        i = i._replace(op=(op[0], "relu", *op[1:-1]))
    name, kind = i.op[0], i.op[-1]
    if len(operands) != _OPERANDS[name]:
        raise CannotSimulate(f"{len(operands)} operands")
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        from .floats import write_half

        write_half(b, i)
    elif kind in ("s16x2", "u16x2"):
        _pair_of_shorts(b, i)
    elif type_code(i)[0] == "f":
        from .floats import write_float

        write_float(b, i)
    else:
        refuse_others(i, {"sat", "cc", "lo", "hi", "wide", *_relu(i, "s32")})
        _integer(b, i, type_code(i))


def _relu(i: Instruction, kind: str) -> Sequence[str]:
    """Return the modifier that clamps negative results to 0, if the instruction has it on this type."""
    return ("relu",) if i.op[0] in ("min", "max") and i.op[-1] == kind else ()


@lru_cache(maxsize=256)
def _plain(op: tuple[str, ...]) -> tuple[int, str, str] | None:
    """Return the operand count, format and dtype code of an instruction that equals a NumPy operation; else None."""
    name, *modifiers, kind = op
    code, forms = CODES.get(kind, "?"), dict[str, str]()
    if kind in ("f32", "f64"):
        forms = PLAIN_FLOAT if modifiers in ([], ["rn"]) else forms
    elif code != "?" and code[0] != "f" and kind != "f16x2":
        code = f"u{code[1]}"  # registers are unsigned: no view is needed
        if not modifiers and name in _SIGNLESS:
            forms = _INTEGER
        elif modifiers == ["lo"]:
            forms = _PRODUCT
    return (_OPERANDS[name], forms[name], code) if name in forms else None


def _pair_of_shorts(b: BlockWriter, i: Instruction) -> None:
    refuse_others(i, {"sat", *_relu(i, "s16x2")})
    if i.op[0] not in ("add", "sub", "min", "max"):
        raise CannotSimulate(f"the instruction {i.name}", i.where)
    first, second = (b.read(operand, "u4") for operand in i.operands[1:])
    signed, options = (i.op[-1] == "s16x2",) * 3, (2, "sat" in i.op, False)
    result = f"parts({i.op[0]!r}, {first}, {second}, w.zero, {signed}, {options})"
    if "relu" in i.op:
        result = f"parts('max', {result}, w.zero, w.zero, {signed}, {options})"
    b.write(i.operands[0], result, "u4")


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
        operands = [b.read(operand, code) for operand in i.operands[1:]]
        result = _INTEGER[name] % tuple(operands)
        b.write(i.operands[0], f"np.maximum({result}, {b.names.constant(0, code)})" if "relu" in i.op else result, code)


_PRODUCT = {"mul": "%s * %s", "mad": "%s * %s + %s"}
_SIGNLESS = {"add", "sub", "and", "or", "xor", "not", "neg"}
_INTEGER = {
    "add": "%s + %s", "sub": "%s - %s", "and": "%s & %s", "or": "%s | %s", "xor": "%s ^ %s", "not": "~%s",
    "neg": "-%s", "abs": "np.abs(%s)", "min": "np.minimum(%s, %s)", "max": "np.maximum(%s, %s)",
    "div": "div_int(%s, %s)", "rem": "rem_int(%s, %s)",
}  # fmt: skip


def _multiply(b: BlockWriter, i: Instruction, code: str) -> None:
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
        addend = b.read(i.operands[3], result)
        expression = f"saturated({expression}, {addend}, False)" if "sat" in i.op else f"{expression} + {addend}"
    b.write(i.operands[0], expression, result)


@emits("addc", "subc", "madc", modifiers="cc lo hi")
def _with_carry(b: BlockWriter, i: Instruction) -> None:
    if not b.carries:
        raise CannotSimulate("a carry flag across a jump")
    _carry(b, i, type_code(i), "carry")


def _carry(b: BlockWriter, i: Instruction, code: str, borrow: str | None) -> None:
    """Write an operation with carry. The flag is a local of the block: compiled code never uses it across a jump."""
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
    b.carries = True
    b.lines.append(f"{total}, carry = {function}({operands[0]}, {operands[1]}, {carry_in})")
    b.write(i.operands[0], total, unsigned)


@emits("mul24", "mad24", modifiers="lo hi")
def _multiply24(b: BlockWriter, i: Instruction) -> None:
    code = type_code(i)
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
    first, second, third = (b.read(operand, type_code(i)) for operand in i.operands[1:])
    unsigned = f"u{type_code(i)[1]}"
    difference = f"(np.maximum({first}, {second}) - np.minimum({first}, {second})).view({unsigned})"
    b.write(i.operands[0], f"{third}.view({unsigned}) + {difference}", unsigned)


@emits("shl", "shr")
def _shift(b: BlockWriter, i: Instruction) -> None:
    code = type_code(i)
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


@emits("brev", "popc", "clz", "bfind", modifiers="shiftamt")
def _bits(b: BlockWriter, i: Instruction) -> None:
    code = type_code(i)
    value = b.read(i.operands[1], code)
    extra = f", {'shiftamt' in i.op}" if i.op[0] == "bfind" else ""
    b.write(i.operands[0], f"{i.op[0]}({value}{extra})", code if i.op[0] == "brev" else "u4")


@emits("bfe", "bfi")
def _field(b: BlockWriter, i: Instruction) -> None:
    code = type_code(i)
    values = [b.read(operand, code) for operand in i.operands[1:-2]]
    counts = [b.read(operand, "u4") for operand in i.operands[-2:]]
    b.write(i.operands[0], f"{i.op[0]}({', '.join(values + counts)})", code)


@emits(*(f"v{name}{count}" for name in ("add", "sub", "absdiff", "min", "max") for count in "24"), modifiers="sat add")
def _parts(b: BlockWriter, i: Instruction) -> None:
    values = ", ".join(b.read(operand, "u4") for operand in i.operands[1:])
    signed = tuple(word == "s32" for word in i.op[1:4])
    options = (int(i.op[0][-1]), "sat" in i.op, "add" in i.op)
    b.write(i.operands[0], f"parts({i.op[0][1:-1]!r}, {values}, {signed}, {options})", "u4")


_ON_WORDS: dict[str, tuple[str, Callable[[tuple[str, ...]], tuple[object, ...]]]] = {
    "shf": ("l r clamp wrap", lambda op: ("funnel", op[1] == "l", op[2] == "wrap")),
    "fns": ("", lambda op: ("fns",)),
    "bmsk": ("clamp wrap", lambda op: ("bmsk", "wrap" in op)),
    "prmt": ("f4e b4e rc8 ecl ecr rc16", lambda op: ("prmt", op[2] if len(op) > 2 else "")),
    "dp4a": ("", lambda op: ("dot4", tuple(part == "s32" for part in op[-2:]), -1)),
    "dp2a": ("lo hi", lambda op: ("dot4", tuple(part == "s32" for part in op[-2:]), int("hi" in op))),
}
"""By opcode: modifiers; a function of `integers`, with its arguments after the operands, which are 32-bit words."""


def _on_words(b: BlockWriter, i: Instruction) -> None:
    function, *options = _ON_WORDS[i.op[0]][1](i.op)
    arguments = (*(b.read(operand, "u4") for operand in i.operands[1:]), *map(repr, options))
    b.write(i.operands[0], f"{function}({', '.join(arguments)})", "u4")


for _name, (_modifiers, _) in _ON_WORDS.items():
    emits(_name, modifiers=_modifiers)(_on_words)


@emits("lop3")
def _lop3(b: BlockWriter, i: Instruction) -> None:
    values = ", ".join(b.read(operand, "u4") for operand in i.operands[1:4])
    table = i.operands[4]
    if not isinstance(table, Imm):
        raise CannotSimulate("a lookup table in a register")
    b.write(i.operands[0], f"lop3({values}, {table.value})", "u4")


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
    first, second, predicate = b.read(i.operands[1], code), b.read(i.operands[2], code), b.read(i.operands[3], "?")
    for site, address, is_first in b.unchecked.pop(i.number, ()):
        b.lines.append(f"w.check_chosen(L, {site}, {address}, {'' if is_first else '~'}{predicate})")
    b.write(i.operands[0], f"select({predicate}, {first}, {second})", code)


@emits("slct", modifiers="ftz")
def _slct(b: BlockWriter, i: Instruction) -> None:
    code, control = CODES[i.op[-2]], b.read(i.operands[3], type_code(i))
    first, second = b.read(i.operands[1], code), b.read(i.operands[2], code)
    if "ftz" in i.op:
        control = f"ftz({control})"
    b.write(i.operands[0], f"select({control} >= 0, {first}, {second})", code)
