"""A submission's tunables, read from the compiled module.

Macros and constants, `#define BLOCK_SIZE 256` and `const int BLOCK_SIZE = 256;`, declare tunables, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_gpulab.devices.protocol import Module
from pytest_gpulab.devices.source.host_code import file_constants
from pytest_gpulab.devices.source.tokens import Token, closing, tokens
from pytest_gpulab.exercise import Tunable
from pytest_gpulab.grading.findings import Problem, finding

TUNABLE_PREFIX = "gpulab_tunable_"
TUNABLE_BYTES = 4


def read_tunables(
    module: Module, tunables: Sequence[Tunable], host_names: Mapping[str, int]
) -> tuple[dict[str, int], list[Problem]]:
    """Return the values by name, and a problem per tunable without an accepted value.

    Such a tunable gets an accepted value, so that the rest of the file can be compared with the plans. `host_names` are
    declared in host code, by their lines.
    """
    values, problems = dict[str, int](), list[Problem]()
    for tunable in tunables:
        value = _value_or_problem(module, tunable, host_names.get(tunable.name))
        if isinstance(value, Problem):
            problems.append(value)
            value = tunable.allowed[len(tunable.allowed) // 2]
        values[tunable.name] = value
    return values, problems


def _value_or_problem(module: Module, tunable: Tunable, line: int | None) -> int | Problem:
    symbol, name, accepted = (
        TUNABLE_PREFIX + tunable.name,
        tunable.name,
        f"accepted for {tunable.name}: {_listed(tunable.allowed)}",
    )
    if symbol not in module.symbols:
        if line is not None:
            what = f"`{name}` (line {line}) is no constant at file scope, so the grader cannot read the tunable."
            hint = f"Write `const int {name} = value;` at file scope."
            request = f"make `{name}` (line {line}) a constant"
            return Problem(finding("tunable-missing", what, "", (accepted,), hint), request, is_complete=True)
        if tunable.default is not None:
            return tunable.default
        hint = f"Write GPULAB_TUNABLE({name}, value) at file scope, after #include <gpulab.cuh>."
        found = finding("tunable-missing", f"The file does not declare the tunable {name}.", "", (accepted,), hint)
        return Problem(found, f"add GPULAB_TUNABLE({name}, value) at file scope", is_complete=True)
    contents = module.read_symbol(symbol)
    if len(contents) != TUNABLE_BYTES:
        what = f"The tunable {name} cannot be read back: it is {len(contents)} bytes wide, not {TUNABLE_BYTES}."
        return Problem(finding("tunable-missing", what), f"declare {name} by GPULAB_TUNABLE")
    value = int.from_bytes(contents, "little", signed=True)
    if value not in tunable.allowed:
        what = f"The tunable {name} is {value}, which this exercise does not accept."
        return Problem(finding("tunable-range", what, evidence=(accepted,)), f"change {name} from {value}")
    return value


def _listed(allowed: Sequence[int]) -> str:
    if isinstance(allowed, range):
        step = "" if allowed.step == 1 else f" in steps of {allowed.step}"
        return f"{allowed[0]} to {allowed[-1]}{step}"
    return ", ".join(map(str, allowed))


_DECLARED = "GPULAB_TUNABLE"
READ_BACK = '\nextern "C" __device__ const int gpulab_tunable_{0} = ({1});\n'


def with_defined_tunables(source: str, names: Collection[str]) -> str:
    """Return a text with a symbol per macro and constant, so that the compiled module contains their values.

    A macro would corrupt a GPULAB_TUNABLE of the same name, so that is blanked. The kernels use the macro's value.
    Line numbers do not change.
    """
    found = tokens(source)
    defined = {token.within[1].text for token in found if _is_constant(token)}
    for name in sorted(defined.intersection(names)):
        for start, end in declarations(found, name):
            blank = "".join(sign if sign == "\n" else " " for sign in source[start:end])
            source = source[:start] + blank + source[end:]
        source += f"\n#ifdef {name}{READ_BACK.format(name, name)}#endif\n"
    absent = [name for name in names if name not in defined and not any(declarations(found, name))]
    constants = file_constants(source) if absent else frozenset()
    return source + "".join(f"\n{READ_BACK.format(name, name)}" for name in absent if name in constants)


def _is_constant(token: Token) -> bool:
    """Return True if the line defines a macro with a value and no parameters."""
    if token.kind != "directive" or token.text != "define" or len(token.within) <= len(("define", "NAME")):
        return False
    name, after = token.within[1:3]
    return after.text != "(" or after.start > name.end


def declarations(found: list[Token], name: str) -> Iterable[tuple[int, int]]:
    """Yield start and end of each `GPULAB_TUNABLE(name, ...)`."""
    for at in range(len(found) - 2):
        if [token.text for token in found[at : at + 3]] == [_DECLARED, "(", name]:
            yield found[at].start, found[closing(found, at + 1)].end
