"""Which files a submission asks the compiler to read: only headers by plain names, never a path of this machine."""

from __future__ import annotations

import re
from typing import NamedTuple


class Include(NamedTuple):
    """An include directive that is not accepted: its line, counted from 1, and what it asks for."""

    line: int
    operand: str


# As the preprocessor reads a file: literals and comments are no directives, a backslash joins lines, %: is a #.
_COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t\f\v]*(?:#|%:)[ \t\f\v]*(?:include|include_next|import|embed)\b(.*)$", re.MULTILINE)
_HEADER = re.compile(r'<([^<>]+)>|"([^"]+)"')
_JOINED = re.compile(r"\\[ \t]*\r?\n")


def unaccepted_include(source: str) -> Include | None:
    """Return the first include of anything but a header by its plain name, such as `<cub/cub.cuh>` or `"paths.cuh"`.

    Absolute paths, `..` and names that come out of macros could be any file of the machine, a solution for instance,
    or one that the compiler's messages would show.
    """
    for directive in _DIRECTIVE.finditer(_without_comments(source)):
        operand = directive[1].strip()
        header = _HEADER.fullmatch(operand)
        # a quoted name is looked for in the working folder, too: no way into the folders below it
        if header is None or _leads_elsewhere(header[1] or header[2]) or "/" in (header[2] or ""):
            return Include(_line_of(source, directive[0], operand), operand)
    return None


def _without_comments(source: str) -> str:
    joined = _JOINED.sub("", source).replace("\r", "\n")
    return _COMMENT_OR_LITERAL.sub(lambda match: match[0] if match[0].startswith('"') else " ", joined)


def _leads_elsewhere(name: str) -> bool:
    return name.startswith(("/", "\\", "~")) or ".." in name or ":" in name or "\\" in name


def _line_of(source: str, directive: str, operand: str) -> int:
    """Return where the directive stands, as well as comments and joined lines allow to tell."""
    at = max(source.find(directive.strip()), 0) or max(source.find(operand), 0)
    return source.count("\n", 0, at) + 1
