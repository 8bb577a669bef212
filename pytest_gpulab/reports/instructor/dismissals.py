"""Flags that the instructor has dismissed, in a file beside the report.

Beside `report.html`, the file is `report-dismissed.txt`. Each line has the number of a flag, as the report shows it,
and a reason. The number depends only on the kind of the flag, the exercise and the submissions: a new run keeps it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .flags import Flag

_DIGITS = 6


def read_dismissals(report: Path) -> dict[str, str]:
    """Return the reasons by the flags' numbers, nothing if there is no file, or raise OSError if it cannot be read."""
    path = report.with_name(f"{report.stem}-dismissed.txt")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    words = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return {word[0]: word[1].strip() if len(word) > 1 else "" for word in words}


def number_of(flag: Flag) -> str:
    """Return the number of a flag, such as `f3a09c`."""
    text = "\0".join((flag.kind, flag.exercise, *flag.submissions))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
