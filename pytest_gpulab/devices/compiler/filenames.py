"""File names for compilers, made safe: students choose the names, and they become part of the compiled text."""

from __future__ import annotations


def shown(filename: str) -> str:
    """Return the name with a question mark for each unprintable character, such as line ends and invalid bytes.

    A leading hyphen is replaced as well, because NVRTC would read the name as an option.
    """
    name = "".join(sign if sign.isprintable() else "?" for sign in filename)
    return f"?{name[1:]}" if name.startswith("-") else name


def line_one(filename: str) -> str:
    """Return a `#line` directive: diagnostics and line tables then count lines of that file from 1."""
    quoted = shown(filename).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{quoted}"\n'
