"""The assembler's messages about inline assembly, at lines of the source instead of lines of the PTX."""

from __future__ import annotations

import re

_MESSAGE = re.compile(r"^ptxas [^\n]*?, line (?P<line>\d+); (?:error|fatal) *: *(?P<text>[^\n]*)$", re.M)
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)


def at_source_lines(messages: str, ptx: str) -> str:
    """Return the assembler's messages, with each error in the compiler's form: `file.cu(12): error: text`.

    Args:
        messages: the messages of ptxas, which name lines of the PTX.
        ptx: the PTX, with line information. An error before its first source line keeps its form.
    """
    files = dict(_FILE.findall(ptx))
    lines = ptx.splitlines(keepends=True)

    def placed(message: re.Match[str]) -> str:
        places = _PLACE.findall("".join(lines[: int(message["line"])]))
        if not places:
            return message[0]
        file, line = places[-1]
        return f"{files.get(file, file)}({line}): error: {message['text']}"

    return _MESSAGE.sub(placed, messages)
