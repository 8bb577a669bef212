"""Tables in CSV files: UTF-8, or UTF-16 with a byte order mark, with commas, semicolons or tabs between the cells."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

SEPARATORS = ",;\t"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text", and tables of Blackboard

Record = tuple[int, list[str]]
"""The line of a record, from 1, and its cells."""


class TableMistake(Exception):
    """A mistake in a file or in one of its lines."""


def text_of(path: Path) -> str:
    """Return the text of a file, or raise TableMistake if it cannot be read, or is not UTF-8."""
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise TableMistake(f"cannot be read: {error.strerror}") from None
    try:
        return contents.decode("utf-16" if contents.startswith(UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise TableMistake(f"line {line}: this is not UTF-8; save the table as CSV in UTF-8") from None


def header_of(text: str, is_known: Callable[[str], bool]) -> tuple[Record, str]:
    """Return the first record, and the separator that yields most known titles of columns.

    Raises TableMistake if a quote in the header is not closed.
    """
    readings = []
    for separator in SEPARATORS:
        with contextlib.suppress(TableMistake):  # quotes may be valid with another separator only
            record = next(records(text, separator), (1, [""]))
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
