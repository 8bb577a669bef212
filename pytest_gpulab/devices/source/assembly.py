"""Inline assembly that claims other source lines: counters, findings and costs go by the compiler's own."""

from __future__ import annotations

import re

from pytest_gpulab.devices.errors import CompileError

_PLACES = re.compile(r"\.(?:loc|file)\b")


def may_hold_assembly(source: str) -> bool:
    """Return whether a text may hold inline assembly of its own, whatever its headers hold."""
    joined = source.replace("\\\r\n", "").replace("\\\n", "")  # lines that go on
    return "asm" in joined or "##" in joined


def check_assembly(ptx: str, filename: str) -> None:
    """Refuse inline assembly with `.loc` or `.file`.

    Args:
        ptx: compiled without line information: then these directives come from assembly alone. In other PTX nothing
            tells them from the compiler's, because assembly may hold the comments that mark its end.
        filename: what the message calls the file.

    Raises:
        CompileError: there is such a directive.
    """
    if found := _PLACES.search(ptx):
        raise CompileError(f"{filename}: error: inline assembly with `{found[0]}` is refused: it moves source lines")
