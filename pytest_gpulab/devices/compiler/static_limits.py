"""Messages for files with too much static memory or undefined functions, the same on both devices.

CUDA's assembler, ptxas, rejects such a file. The simulated GPU uses no assembler and finds the error in the PTX.
"""

import re
from collections.abc import Iterable

from pytest_gpulab.devices.source.names import unmangle

_REFUSED = re.compile(
    r"ptxas\s+error\s*: (?:Entry function '(?P<kernel>\w+)'|File) uses too much (?P<kind>shared|global constant|local) "
    r"data \(0x(?P<needed>[0-9a-f]+) bytes, 0x(?P<most>[0-9a-f]+) max\)"
)
_UNRESOLVED = re.compile(r"^ptxas fatal +: Unresolved extern function '(?P<name>[\w$]+)'", re.MULTILINE)
_OWNER = {"shared": "block", "global constant": "file", "local": "thread"}


def too_much(names: Iterable[str], kind: str, needed: int, most: int) -> str:
    """Return the message for arrays or a kernel, by names such as "`tile`", that need more bytes than `most`.

    `kind` is `shared`, `global constant` or `local`.
    """
    *first, last = names
    subject, verb = (f"{', '.join(first)} and {last}", "need") if first else (last, "needs")
    memory = kind.removeprefix("global ")
    return f"{subject} {verb} {needed:,} bytes of {memory} memory; the limit per {_OWNER[kind]} is {most:,}"


def defined_nowhere(symbol: str) -> str:
    """Return the message for a function without a definition, from the compiler's symbol for it."""
    name = unmangle(symbol)
    known_as = "" if name == symbol else f" ({symbol})"
    return f"the function `{name}` is called, but not defined{known_as}"


def with_plain_words(diagnostics: str, filename: str) -> str:
    """Return ptxas's messages, preceded by an explanation if they are about memory or an undefined function."""
    if (found := _REFUSED.search(diagnostics)) is not None:
        name = f"`{unmangle(found['kernel'])}`" if found["kernel"] else "the file"
        sentence = too_much([name], found["kind"], int(found["needed"], 16), int(found["most"], 16))
    elif (found := _UNRESOLVED.search(diagnostics)) is not None:
        sentence = defined_nowhere(found["name"])
    else:
        return diagnostics
    return f"{filename}: error: {sentence}\n{diagnostics}"
