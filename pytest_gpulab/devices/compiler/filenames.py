"""What compilers are told that a file is called: students choose names, and a name becomes part of a text."""

from __future__ import annotations


def shown(filename: str) -> str:
    """Return the name with a question mark for each sign that cannot be printed, line ends and broken bytes too.

    NVRTC takes a name that begins with a hyphen for an option: such a hyphen is replaced as well.
    """
    name = "".join(sign if sign.isprintable() else "?" for sign in filename)
    return f"?{name[1:]}" if name.startswith("-") else name


def line_one(filename: str) -> str:
    """Return a directive after which diagnostics and line tables speak of that file, from its first line on."""
    quoted = shown(filename).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{quoted}"\n'
