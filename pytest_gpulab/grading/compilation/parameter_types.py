"""Types of a kernel's parameters, from the compiled kernel's symbol, compared with those that a launch passes."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Module
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.findings import counted, finding, listed
from pytest_gpulab.grading.grade import Finding

C_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long", "float16": "half",
    "float32": "float", "float64": "double",
}  # fmt: skip
# kind and bytes of an element; signed and unsigned count as equal, other types (structures) are not compared
_LAYOUTS = {
    "bool": "u1", "char": "i1", "signed char": "i1", "unsigned char": "i1", "short": "i2", "unsigned short": "i2",
    "int": "i4", "unsigned int": "i4", "long": "i8", "unsigned long": "i8", "long long": "i8",
    "unsigned long long": "i8", "__half": "f2", "float": "f4", "double": "f8",
}  # fmt: skip
_VECTOR = re.compile(r"(u?)(char|short|int|long|longlong|float|double)[1-4]")
_LONG = {"longlong": "long long"}

POINTER_BYTES = 8
_HINT = "Declare the parameter as in the skeleton."


def parameter_finding(module: Module, plan: Plan, launch: Launch) -> Finding | None:
    """Return the finding of a wrong number or wrong sizes of parameters, or None."""
    declared = module.parameter_bytes(launch.kernel)
    given = tuple(POINTER_BYTES if isinstance(arg, str) else arg.dtype.itemsize for arg in launch.args)
    if declared is None or declared == given:
        return None
    if len(declared) != len(given):
        what = f"`{launch.kernel}` has {counted(len(declared), 'parameter')}, but it is called with {len(given)}."
    else:
        at = next(index for index, sizes in enumerate(zip(declared, given, strict=True)) if sizes[0] != sizes[1])
        what = (
            f"Parameter {at + 1} of `{launch.kernel}` is {declared[at]} bytes wide, "
            f"but it is called with {_type_name(launch.args[at])} ({given[at]} bytes)."
        )
    types = module.parameter_types(launch.kernel)
    if types:
        return finding(
            "wrong-signature", what, evidence=_both(types, [_passed_type(plan, each) for each in launch.args])
        )
    evidence = (
        f"called with: {', '.join(f'`{arg}`' if isinstance(arg, str) else _type_name(arg) for arg in launch.args)}",
        f"declared: {counted(len(declared), 'parameter')} of {', '.join(map(str, declared)) or 'no'} bytes",
    )
    return finding("wrong-signature", what, evidence=evidence)


def type_finding(module: Module, plan: Plan, launch: Launch, names: Callable[[], tuple[str, ...]]) -> Finding | None:
    """Return the finding of the first parameter that has another type than the launch passes, or None.

    `const`, the sign of integers and vectors of the same element type make no difference. Nothing is found if the
    number of arguments is wrong. `names` returns the names of the parameters, as far as known.
    """
    types = module.parameter_types(launch.kernel)
    if types is None or len(types) != len(launch.args):
        return None
    passed = [_passed_type(plan, argument) for argument in launch.args]
    for at, (found, argument) in enumerate(zip(types, launch.args, strict=True)):
        if not _fits(found, argument, plan):
            what = f"{_label(at, names())} of `{launch.kernel}` is `{found}`, but the grader passes {passed[at]}."
            return finding("wrong-signature", what, evidence=_both(types, passed), hint=_HINT)
    return _unwritable(plan, launch, types, passed, names)


def with_type_macros(found: Finding, defines: Iterable[Mapping[str, str]]) -> Finding:
    """Return a finding with a hint that also names the macros of the exercise's variants that are types."""
    types = dict.fromkeys(name for each in defines for name, value in each.items() if value in C_NAMES.values())
    if not types or _HINT not in found.hint:
        return found
    macros = f"Where that says {listed(types, 'or')}, write it as well: it is another type in each variant."
    return replace(found, hint=found.hint.replace(_HINT, f"{_HINT} {macros}"))


def _unwritable(
    plan: Plan, launch: Launch, types: tuple[str, ...], passed: list[str], names: Callable[[], tuple[str, ...]]
) -> Finding | None:
    """Return the finding of a const output, if the kernel can write only to inputs."""
    arrays = [(at, plan.buffer(arg)) for at, arg in enumerate(launch.args) if isinstance(arg, str)]
    results = [(at, buffer) for at, buffer in arrays if buffer.role != "input"]
    if not results or any(not types[at].startswith("const ") for at, _ in results):
        return None
    at = results[0][0]
    what = (
        f"{_label(at, names())} of `{launch.kernel}` is `{types[at]}`, but the grader passes {passed[at]} to write to."
    )
    inputs = [other for other, given in arrays if given.role == "input" and not types[other].startswith("const ")]
    hint = "Are two parameters swapped? Their order is that of the skeleton." if inputs else None
    return finding("wrong-signature", what, evidence=_both(types, passed), hint=hint)


def _both(types: tuple[str, ...], passed: list[str]) -> tuple[str, ...]:
    return f"called with: {', '.join(passed)}", f"declared: {', '.join(types)}"


def _label(at: int, names: tuple[str, ...]) -> str:
    return f"Parameter {at + 1} (`{names[at]}`)" if at < len(names) else f"Parameter {at + 1}"


def _passed_type(plan: Plan, argument: str | np.generic) -> str:
    if not isinstance(argument, str):
        return f"`{c_name(argument.dtype)}`"
    buffer = plan.buffer(argument)
    return f"`{'const ' if buffer.role == 'input' else ''}{c_name(buffer.dtype)} *` (`{argument}`)"


def c_name(dtype: npt.DTypeLike) -> str:
    """Return the C name of a dtype; NumPy's own if there is none."""
    name = str(np.dtype(dtype).name)
    return C_NAMES.get(name, name)


def _fits(found: str, argument: str | np.generic, plan: Plan) -> bool:
    dtype = np.dtype(plan.buffer(argument).dtype if isinstance(argument, str) else argument.dtype)
    is_pointer = found.endswith("*")
    if found.endswith("&"):  # of a parameter that the kernel would read through its address
        return False
    if is_pointer != isinstance(argument, str):
        return found not in _LAYOUTS and not is_pointer
    element = " ".join(word for word in found.rstrip("* ").split() if word not in ("const", "volatile"))
    if found.count("*") > 1:
        return False
    layout = _layout(element)
    return layout is None or layout == _layout_of(dtype)


def is_element_of(element: str, buffer: Buffer) -> bool:
    """Return whether elements of a C type hold the values of a buffer, row by row. It is True for unknown types."""
    layout, dtype, vector = _layout(element), np.dtype(buffer.dtype), _VECTOR.fullmatch(element)
    return layout is None or (
        layout == _layout_of(dtype)
        and (vector is None or len(buffer.shape) < 2 or int(element[-1]) <= buffer.shape[-1])
    )


def element_name(buffer: Buffer) -> str:
    """Return the C type of a row of a buffer, such as `float2`, or of an element."""
    name = c_name(buffer.dtype)
    vector = f"{name}{buffer.shape[-1]}" if len(buffer.shape) == 2 else ""
    return vector if _VECTOR.fullmatch(vector) else name


def _layout_of(dtype: np.dtype[Any]) -> str:
    return dtype.kind.replace("u", "i").replace("b", "u") + str(dtype.itemsize)


def _layout(element: str) -> str | None:
    vector = _VECTOR.fullmatch(element)
    return _LAYOUTS.get(_LONG.get(vector[2], vector[2]) if vector else element)


def _type_name(argument: str | np.generic) -> str:
    return "a pointer" if isinstance(argument, str) else c_name(argument.dtype)


def declaration(plan: Plan, launch: Launch) -> str:
    """Return the declaration of a kernel with the parameters of a launch."""
    types = (_passed_type(plan, argument).partition("` (")[0].strip("`") for argument in launch.args)
    return f"__global__ void {launch.kernel}({', '.join(types)})"
