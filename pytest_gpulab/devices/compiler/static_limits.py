"""Memory that a file asks for and no GPU has, functions that it lacks: words for it, the same wherever it is found.

CUDA's assembler, ptxas, refuses such a file. The simulated GPU, which needs no assembler, finds it in PTX.
Source of the figures: the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_gpulab.devices.source.names import unmangle

SHARED_BYTES = 48 << 10  # declared with a size, in a block
CONSTANT_BYTES = 64 << 10
LOCAL_BYTES = 512 << 10  # in a thread

_REFUSED = re.compile(
    r"ptxas\s+error\s*: (?:Entry function '(?P<kernel>\w+)'|File) uses too much (?P<kind>shared|global constant|local) "
    r"data \(0x(?P<needed>[0-9a-f]+) bytes, 0x(?P<most>[0-9a-f]+) max\)"
)
_UNRESOLVED = re.compile(r"^ptxas fatal +: Unresolved extern function '(?P<name>[\w$]+)'", re.MULTILINE)
_OWNER = {"shared": "a block", "global constant": "a file", "local": "a thread"}


def too_much(names: Iterable[str], kind: str, needed: int, most: int) -> str:
    """Return the sentence for arrays or a kernel that need too much memory.

    Args:
        names: for the sentence, such as "`tile`".
        kind: `shared`, `global constant` or `local`.
        needed, most: bytes.
    """
    *first, last = names
    subject, verb = (f"{', '.join(first)} and {last}", "need") if first else (last, "needs")
    memory = kind.removeprefix("global ")
    return f"{subject} {verb} {needed:,} bytes of {memory} memory, {_OWNER[kind]} may have {most:,}"


def defined_nowhere(symbol: str) -> str:
    """Return the sentence for a function without a definition, which the compiler calls `symbol`."""
    name = unmangle(symbol)
    known_as = "" if name == symbol else f" ({symbol})"
    return f"the function `{name}` is called, but defined nowhere{known_as}"


def with_plain_words(diagnostics: str, filename: str) -> str:
    """Return ptxas's messages, with what they mean before them where they are about memory or a missing function."""
    if (found := _REFUSED.search(diagnostics)) is not None:
        name = f"`{unmangle(found['kernel'])}`" if found["kernel"] else "the file"
        sentence = too_much([name], found["kind"], int(found["needed"], 16), int(found["most"], 16))
    elif (found := _UNRESOLVED.search(diagnostics)) is not None:
        sentence = defined_nowhere(found["name"])
    else:
        return diagnostics
    return f"{filename}: error: {sentence}\n{diagnostics}"
