"""Which files a submission asks the compiler to read: only headers by plain names, never a path of this machine.

Compilers disagree on where a comment, a string or a joined line ends, so this takes no notice of them: whatever one
reading of the text could take for an include has to be of an accepted form, in comments and in strings, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Include(NamedTuple):
    """An include directive that is not accepted: its line, counted from 1, and what it asks for."""

    line: int
    operand: str


# No blanks of lines and comments in these: what searches them again and again takes without end on hostile files.
_BLANKS = r"[ \t\f\v\r]*"
# The first on its line, as far as blanks and comments go. Nobody has a comment right behind the sign but to deceive.
_DIRECTIVE = re.compile(
    rf"(?:^|\*/){_BLANKS}(?:#|%:){_BLANKS}(?:(?:include|include_next|import|embed)\b|(?=/[*/]))(.*)$", re.MULTILINE
)
_PLAIN = r"""(?:<(?P<angled>[^<>"\n]+)>|"(?P<quoted>[^"\n]+)")"""
_OPERAND = re.compile(rf"{_BLANKS}{_PLAIN}{_BLANKS}(?:/[/*].*)?")
# Where the operator stands plainly, or is asked for; elsewhere a macro could have it, or make it out of parts.
_QUESTION = re.compile(r"\b__has_(?:include|include_next|embed)\b[ \t]*\(([^)\n]*)")
_DEFINED = re.compile(r"(?:\bdefined[ \t]*\(?|#[ \t]*ifn?def)[ \t]*__has_\w+[ \t]*")
_OPERATORS = ("__has_include", "__has_include_next", "__has_embed")
_NAMED = re.compile(rf"\b(?:{'|'.join(_OPERATORS)})\b[^\n]*")
_PASTE = re.compile(r"##|%:%:|\?\?=\?\?=")
_WORD = re.compile(r"\b_\w*")
# A line that would move what follows into another file, or to other lines.
_MOVED = re.compile(rf"(?:^|\*/){_BLANKS}(?:#|%:|\?\?=){_BLANKS}(?:line\b|(?=\d))(.*)$", re.MULTILINE)
_ASKED = re.compile(rf"{_BLANKS}{_PLAIN}{_BLANKS}")
# gcc joins lines although blanks follow the backslash, NVIDIA's compilers do not; a lone return is a blank or an end
_JOINTS = (r"\\\n", r"\\\r?\n", r"\\[ \t\f\v\r]*\n")


def unaccepted_include(source: str) -> Include | None:
    """Return the first include of anything but a header by its plain name, such as `<cub/cub.cuh>` or `"paths.cuh"`.

    Absolute paths, `..` and names that come out of macros could be any file of the machine, a solution for instance,
    or one that the compiler's messages would show. Whether such a file exists must not be asked either.
    """
    for text in _readings(source):
        for pattern, accepted in ((_DIRECTIVE, _OPERAND), (_QUESTION, _ASKED)):
            for found in pattern.finditer(text):
                header = accepted.fullmatch(found[1])
                if header is None or not _is_plain(header):
                    operand = found[1].strip()
                    return Include(_line_of(source, found[0], operand), operand)
        hidden = _hidden_question(text)
        if hidden is not None:
            return Include(_line_of(source, hidden, hidden), hidden)
    return None


def moved_line(source: str) -> int | None:
    """Return the line of the first `#line` directive, or None: places in messages and listings must stay true."""
    for text in _readings(source):
        found = _MOVED.search(text)
        if found:
            return _line_of(source, found[0], found[1].strip())
    return None


def _hidden_question(text: str) -> str | None:
    """Return what asks whether a file exists in another form than `__has_include(<name>)`, or could be made to."""
    rest = _QUESTION.sub(" ", _DEFINED.sub(" ", text))
    named = _NAMED.search(rest)
    if named:
        return named[0].strip()
    if _PASTE.search(rest):
        parts = (word for word in _WORD.findall(rest) if any(each.startswith(word) for each in _OPERATORS))
        return next(parts, None)
    return None


def _readings(source: str) -> Iterator[str]:
    for joint in _JOINTS:
        joined = re.sub(joint, "", source)
        yield joined
        if "\r" in joined:
            yield joined.replace("\r", "\n")


def _is_plain(header: re.Match[str]) -> bool:
    """Say whether the name leads into the compiler's own folders only; one in quotes, not below them either."""
    name = header["angled"] or header["quoted"]
    if name.startswith(("/", "~")) or ".." in name or ":" in name or "\\" in name:
        return False
    return header["quoted"] is None or "/" not in name


def _line_of(source: str, directive: str, operand: str) -> int:
    """Return where the directive stands, as well as joined lines allow to tell."""
    at = max(source.find(directive.strip()), 0) or max(source.find(operand), 0)
    return source.count("\n", 0, at) + 1
