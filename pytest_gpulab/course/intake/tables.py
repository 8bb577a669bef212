"""Tables in CSV files: UTF-8, or UTF-16 with a byte order mark, with commas, semicolons or tabs between the cells."""

import codecs
import contextlib
import csv
import io
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

SEPARATORS = ",;\t"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text", and tables of Blackboard

MAX_MISTAKES = 20  # a table in another format has one per line
LINES_ABOVE = 2
"""Records that may be above the header."""
Record = tuple[int, list[str]]
"""The line of a record, from 1, and its cells."""


class TableMistake(Exception):
    """A mistake in a file or in one of its lines."""


def in_lines(path: Path, mistakes: list[str]) -> str:
    """Return the mistakes in a file, one per line."""
    more = len(mistakes) - MAX_MISTAKES
    shown = mistakes[:MAX_MISTAKES] + ([f"and {more} more mistakes"] if more > 0 else [])
    return "\n".join(f"{path}: {mistake}" for mistake in shown)


def text_of(path: Path) -> str:
    """Return the text of a file, or raise TableMistake if it cannot be read, or is not UTF-8."""
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise TableMistake(f"cannot be read: {error.strerror}") from None
    is_utf_16 = contents.startswith(UTF_16)
    try:
        text = contents.decode("utf-16" if is_utf_16 else "utf-8-sig")
        wrong = -1 if is_utf_16 else contents.find(b"\0")  # a workbook, or UTF-16 without its mark
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    if wrong >= 0:
        line = contents.count(b"\n", 0, wrong) + 1
        raise TableMistake(f"line {line}: this is not UTF-8; save the table as CSV in UTF-8")
    return text


def header_of(text: str, is_known: Callable[[str], bool]) -> tuple[Record, str]:
    """Return the record with most known titles of columns among the first ones, and the separator that yields it.

    Excel writes `sep=;` above the header, Sakai the assignment. Raises TableMistake if a quote in the header is not
    closed.
    """
    readings: list[tuple[int, Record, str]] = []
    for separator in SEPARATORS:
        with contextlib.suppress(TableMistake):  # quotes may be valid with another separator only
            for record in islice(chain(records(text, separator), [(1, [""])]), LINES_ABOVE + 1):
                readings.append((sum(map(is_known, record[1])), record, separator))
    if not readings:
        raise TableMistake("line 1: a quote in the header is not closed")
    _, record, separator = max(readings, key=lambda reading: reading[0])
    return record, separator


def records(text: str, separator: str) -> Iterator[Record]:
    """Yield the records that are not blank, each with its first line; raise TableMistake if a quote is not closed."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableMistake(f"line {line}: {error}") from None


def key_of(text: str) -> str:
    """Return a text for comparisons: without surplus spaces, and regardless of case."""
    return unicodedata.normalize("NFC", " ".join(text.split())).casefold()
