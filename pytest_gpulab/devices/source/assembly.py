"""A check against inline assembly that forges source lines, on which counters, findings and costs depend."""

import re

from pytest_gpulab.devices.errors import CompileError

_PLACES = re.compile(r"\.(?:loc|file)\b")


def may_hold_assembly(source: str) -> bool:
    """Return whether a text itself may contain inline assembly; headers are not considered."""
    joined = source.replace("\\\r\n", "").replace("\\\n", "")  # join continued lines
    return "asm" in joined or "##" in joined


def check_assembly(ptx: str, filename: str) -> None:
    """Refuse inline assembly with `.loc` or `.file` by a CompileError.

    In PTX that was compiled without line information only assembly has these directives. In other PTX they cannot be
    distinguished from the compiler's, because assembly may forge the comments that mark its end.
    """
    if found := _PLACES.search(ptx):
        raise CompileError(f"{filename}: error: inline assembly with `{found[0]}` is refused: it moves source lines")
