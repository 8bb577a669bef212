"""Random integer expressions in CUDA C++ agree with Python's arithmetic, reduced to the width of each type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from truth_values import operands

from pytest_gpulab.devices.simulated import SimulatedDevice

TYPES = {"int": (32, True), "unsigned": (32, False), "long long": (64, True), "unsigned long long": (64, False)}
NARROW = {"signed char": (8, True), "unsigned char": (8, False), "short": (16, True), "unsigned short": (16, False)}
VARIABLES = {"a": "int", "b": "int", "u": "unsigned", "v": "unsigned", "l": "long long", "m": "unsigned long long"}
LANES = 96

Evaluate = Callable[[dict[str, int]], int]


@dataclass(frozen=True)
class Expression:
    """C++ text of one of TYPES, and what it is worth for values of the variables."""

    text: str
    type: str
    value: Evaluate


def wrap(value: int, type_name: str) -> int:
    """Return the value that a variable of the type holds after assignment."""
    bits, signed = (TYPES | NARROW)[type_name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def constant(number: int, type_name: str) -> Expression:
    held = wrap(number, type_name)
    return Expression(f"({type_name}){held & 0xFFFFFFFFFFFFFFFF}ull", type_name, lambda _: held)


def variable(name: str) -> Expression:
    return Expression(name, VARIABLES[name], lambda values: values[name])


def cast(x: Expression, type_name: str) -> Expression:
    """Convert, through a narrow type where one is named; the result is an int then, as C++ promotes it."""
    result = type_name if type_name in TYPES else "int"
    return Expression(f"({result})({type_name})({x.text})", result, lambda values: wrap(x.value(values), type_name))


def arithmetic(x: Expression, operator: str, y: Expression) -> Expression:
    """Add, subtract, multiply or combine bits in x's type, by way of the unsigned type so that overflow is defined."""
    kind = x.type
    unsigned = "unsigned long long" if TYPES[kind][0] == 64 else "unsigned"
    functions: dict[str, Callable[[int, int], int]] = {
        "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "&": int.__and__, "|": int.__or__, "^": int.__xor__,
    }  # fmt: skip
    function = functions[operator]
    return Expression(
        f"({kind})(({unsigned})({x.text}) {operator} ({unsigned})({y.text}))",
        kind,
        lambda values: wrap(function(x.value(values), y.value(values)), kind),
    )


def division(x: Expression, operator: str, y: Expression) -> Expression:
    """Divide towards zero, or take the remainder, by y or by 3 where C++ leaves it undefined."""
    kind = x.type

    def value(values: dict[str, int]) -> int:
        dividend, divisor = x.value(values), wrap(y.value(values), kind)
        if divisor in (0, wrap(-1, kind)):
            divisor = 3
        quotient = abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)
        return wrap(quotient if operator == "/" else dividend - quotient * divisor, kind)

    guarded = f"guard(({kind})({y.text}))"
    return Expression(f"({x.text}) {operator} {guarded}", kind, value)


def shift(x: Expression, operator: str, y: Expression) -> Expression:
    """Shift by a count within the width; a negative number to the right keeps its sign."""
    bits = TYPES[x.type][0]
    unsigned = "unsigned long long" if bits == 64 else "unsigned"

    def value(values: dict[str, int]) -> int:
        count = y.value(values) & (bits - 1)
        shifted = x.value(values) << count if operator == "<<" else x.value(values) >> count
        return wrap(shifted, x.type)

    left = f"({unsigned})({x.text})" if operator == "<<" else f"({x.text})"
    return Expression(f"({x.type})({left} {operator} (int)(({y.text}) & {bits - 1}))", x.type, value)


def choice(x: Expression, operator: str, y: Expression, yes: Expression, no: Expression) -> Expression:
    """Compare in x's type and select in the type of `yes`."""
    compare: dict[str, Callable[[int, int], bool]] = {
        "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "==": int.__eq__, "!=": int.__ne__,
    }  # fmt: skip
    function, kind = compare[operator], yes.type

    def value(values: dict[str, int]) -> int:
        holds = function(x.value(values), wrap(y.value(values), x.type))
        return wrap((yes if holds else no).value(values), kind)

    text = f"(({x.text}) {operator} ({x.type})({y.text}) ? ({kind})({yes.text}) : ({kind})({no.text}))"
    return Expression(text, kind, value)


def composed(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    comparison = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        st.builds(arithmetic, inner, st.sampled_from("+-*&|^"), inner),
        st.builds(division, inner, st.sampled_from("/%"), inner),
        st.builds(shift, inner, st.sampled_from(["<<", ">>"]), inner),
        st.builds(choice, inner, comparison, inner, inner, inner),
        st.builds(cast, inner, st.sampled_from([*TYPES, *NARROW])),
    )


leaves = st.one_of(
    st.builds(variable, st.sampled_from(list(VARIABLES))),
    st.builds(constant, st.integers(-(1 << 40), 1 << 63), st.sampled_from(list(TYPES))),
    st.builds(constant, st.integers(-4, 70), st.sampled_from(list(TYPES))),
)
expressions = st.recursive(leaves, composed, max_leaves=8)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(expressions, min_size=6, max_size=6))
def test_integer_expressions(chosen: list[Expression]) -> None:
    parameters = ", ".join(f"const {kind} *{name}s" for name, kind in VARIABLES.items())
    loads = " ".join(f"{kind} {name} = {name}s[i];" for name, kind in VARIABLES.items())
    stores = "\n".join(f"    out[{row * LANES} + i] = (long long)({x.text});" for row, x in enumerate(chosen))
    source = (
        "template <typename T> __device__ T guard(T y) { return y == (T)0 || y == (T)-1 ? (T)3 : y; }\n"
        f"__global__ void f({parameters}, long long *out) {{\n    int i = threadIdx.x; {loads}\n{stores}\n}}\n"
    )
    inputs = _inputs()
    device = SimulatedDevice()
    out = device.array(np.zeros((len(chosen), LANES), np.int64))
    device.compile(source).launch("f", (1,), (LANES,), [*map(device.array, inputs.values()), out])
    got = out.get()
    for row, expression in enumerate(chosen):
        for lane in range(LANES):
            values = {name: int(column[lane]) for name, column in inputs.items()}
            assert got[row, lane] == wrap(expression.value(values), "long long"), (expression.text, values)


def _inputs() -> dict[str, np.ndarray]:
    columns = {}
    for salt, (name, kind) in enumerate(VARIABLES.items()):
        bits, signed = TYPES[kind]
        edges = operands(f"{'i' if signed else 'u'}{bits // 8}", 1024, 2)[salt % 2]
        columns[name] = np.ascontiguousarray(edges[salt * 7 :: 9][:LANES])
    return columns
