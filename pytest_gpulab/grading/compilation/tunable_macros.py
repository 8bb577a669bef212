"""Tunables as macros and constants: `#define BLOCK_SIZE 256` and `const int BLOCK_SIZE = 256;` declare one, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pytest_gpulab.devices.source.host_code import file_constants
from pytest_gpulab.devices.source.tokens import Token, tokens

_DECLARED = "GPULAB_TUNABLE"
_READ_BACK = '\nextern "C" __device__ const int gpulab_tunable_{0} = ({0});\n'


def with_defined_tunables(source: str, names: Collection[str]) -> str:
    """Return a text with a symbol per macro and constant, so that the compiled module contains their values.

    A macro would corrupt a GPULAB_TUNABLE of the same name, so that is blanked. The kernels use the macro's value.
    Line numbers do not change.

    Args:
        source: the file's text.
        names: names of the exercise's tunables.
    """
    found = tokens(source)
    defined = {token.within[1].text for token in found if _is_constant(token)}
    for name in sorted(defined.intersection(names)):
        for start, end in _declarations(found, name):
            blank = "".join(sign if sign == "\n" else " " for sign in source[start:end])
            source = source[:start] + blank + source[end:]
        source += f"\n#ifdef {name}{_READ_BACK.format(name)}#endif\n"
    absent = [name for name in names if name not in defined and not any(_declarations(found, name))]
    constants = file_constants(source) if absent else frozenset()
    return source + "".join(f"\n{_READ_BACK.format(name)}" for name in absent if name in constants)


def _is_constant(token: Token) -> bool:
    """Return True if the line defines a macro with a value and no parameters."""
    if token.kind != "directive" or token.text != "define" or len(token.within) <= len(("define", "NAME")):
        return False
    name, after = token.within[1:3]
    return after.text != "(" or after.start > name.end


def _declarations(found: list[Token], name: str) -> Iterable[tuple[int, int]]:
    for at in range(len(found) - 2):
        if [token.text for token in found[at : at + 3]] == [_DECLARED, "(", name]:
            depth, end = 0, at + 1
            while end < len(found) - 1:
                depth += {"(": 1, ")": -1}.get(found[end].text, 0)
                if not depth:
                    break
                end += 1
            yield found[at].start, found[end].end
