"""Colours of the report: verdicts, headings of findings, hints. pytest decides whether there are any."""

import re
from collections.abc import Callable

Markup = Callable[..., str]
_COLOURS = {
    "green": ("passed", "fastest", "right"),
    "red": ("failed", "failed*"),
    "yellow": ("incomplete", "inconclusive", "not gradable", "not started"),
}
_VERDICTS = {verdict: colour for colour, verdicts in _COLOURS.items() for verdict in verdicts}
_CELL = re.compile(rf"(?<=  )({'|'.join(map(re.escape, sorted(_VERDICTS, key=len, reverse=True)))})(?=  |$)")
_FAILED = re.compile(r"^  FAILED .*")
_MINOR = re.compile(r"^  (missed|expected|inconclusive|not gradable|not started) .*")
_HEADING_INDENT = 4  # of a heading's further lines
_HINT = re.compile(r"^( +)hint: ")


class Painter:
    """A painter of the report's lines, in their order; `markup` is pytest's function of a text and of attributes."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._hint_indent = -1  # of the hint that is being printed
        self._heading: dict[str, bool] = {}  # the attributes of the heading that is being printed

    def painted(self, line: str) -> str:
        """Return the line in colour."""
        indent = len(line) - len(line.lstrip())
        hint = _HINT.match(line)
        if hint or indent > self._hint_indent >= 0:
            self._hint_indent = indent if hint else self._hint_indent
            return self._markup(line, light=True)
        self._hint_indent = -1
        if not (self._heading and indent == _HEADING_INDENT):
            self._heading = {"red": True} if _FAILED.match(line) else {"yellow": True} if _MINOR.match(line) else {}
        if self._heading:
            return self._markup(line, **self._heading)
        return _CELL.sub(lambda cell: self._markup(cell[0], **{_VERDICTS[cell[0]]: True}), line, count=1)
