"""Text in the width of a terminal: visible, cut, wrapped, and lists abridged."""

import shlex
import shutil
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

WIDTH = 100
"""Columns of a report that goes to no terminal."""
NARROWEST, WIDEST = 60, 160
_width = ContextVar("width", default=WIDTH)


def width() -> int:
    """Return the number of columns of the report."""
    return _width.get()


def terminal_columns() -> int:
    """Return the columns of standard output's terminal, or COLUMNS if it is set; `WIDTH` if there is neither."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


@contextmanager
def as_wide_as(columns: int) -> Iterator[None]:
    """Fit the report into a terminal with that many columns, from `NARROWEST` to `WIDEST`."""
    before = _width.set(min(max(columns, NARROWEST), WIDEST))
    try:
        yield
    finally:
        _width.reset(before)


def visible(text: str) -> str:
    """Return text with question marks in place of invisible characters, such as those that reverse its direction."""
    if text.isprintable():  # nearly always, and far faster
        return text
    return "".join("?" if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") else char for char in text)


def fitted(text: str, width: int) -> str:
    """Return text cut or padded to that many terminal columns, without control characters."""
    text = visible(text.expandtabs(4))
    if sum(map(_columns, text)) <= width:
        return text + " " * (width - sum(map(_columns, text)))
    kept, columns_left = "", width - 3
    for char in text:
        columns_left -= _columns(char)
        if columns_left < 0:
            break
        kept += char
    return kept + "..." + " " * (width - 3 - sum(map(_columns, kept)))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def wrapped(text: str, first: str = "", then: str = "  ") -> list[str]:
    """Return text as lines of `width()` columns, with these indentations; longer words, such as paths, stay whole."""
    return textwrap.wrap(
        text, width(), initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )


def wrapped_command(label: str, command: str, indent: str) -> list[str]:
    """Return a labelled shell command as lines of `width()` columns that can be copied; longer words stay whole."""
    lines = [indent + label]
    for word in map(shlex.quote, shlex.split(command)):
        if len(lines[-1]) + len(f" {word} \\") > width() and lines != [indent + label]:
            lines[-1] += " \\"
            lines.append(f"{indent} ")
        lines[-1] += f" {word}"
    return lines


def abridged(names: Sequence[str], limit: int) -> str:
    """Return names in one line: the first ones and the number of the others, if these are more than one."""
    return ", ".join(names if len(names) <= limit + 1 else [*names[:limit], f"and {len(names) - limit} more"])
