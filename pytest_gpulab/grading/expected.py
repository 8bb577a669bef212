"""The verdicts that an instructor expects of known files, read from TOML.

    ["reduction/01_neighbored.cu"]              # a .cu file, relative to the TOML file
    points = 60
    fails = { "speedup[1.5x]" = "too-slow" }    # check -> code of its finding

Bonus tiers that are only missed do not fail and are not listed. In a check's name `*` stands for any text, so that
`"*" = "compile-error"` covers a file that does not compile; the most specific entry counts, and the checks that
`passes = ["correct[n=1]"]` names are exempt. `later = "race"` marks a file whose mistake only a future check of
that kind can see: until then its other keys say what the checks of today make of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = ("fails", "passes", "points", "later")


class ExpectationError(Exception):
    """A file of expected verdicts is wrong: the instructor's mistake, in one line that names the file."""


class ExpectedFailures(Mapping[str, str]):
    """Check name to finding code; looking a name up honours `*` and `passes`, iterating gives what was written."""

    def __init__(self, entries: Mapping[str, str], passes: Iterable[str] = ()) -> None:
        self._entries = dict(entries)
        self._passes = frozenset(passes)

    def __getitem__(self, check: str) -> str:
        matching = [pattern for pattern in self._entries if _matches(pattern, check)]
        if check in self._passes or not matching:
            raise KeyError(check)
        return self._entries[max(matching, key=lambda pattern: (pattern == check, len(pattern)))]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _matches(pattern: str, check: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), check) is not None


@dataclass(frozen=True)
class Expectation:
    """What one file must get: the checks that must fail, each with its finding, and the points, where stated.

    Attributes:
        later: the kind of check that will see the file's mistake one day; empty for all others.
    """

    fails: Mapping[str, str]
    points: float | None = None
    later: str = ""


def is_met(expected: str, codes: Iterable[str]) -> bool:
    """Return whether a finding is the expected one; a device that cannot prove a loop endless runs out of time."""
    accepted = {expected, "time-limit"} if expected == "endless-loop" else {expected}
    return not accepted.isdisjoint(codes)


class Expectations:
    """The expected verdicts of all files that are listed anywhere."""

    def __init__(self, by_path: Mapping[Path, Expectation]) -> None:
        self._by_path = dict(by_path)

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Expectations:
        """Read TOML files.

        Raises:
            ExpectationError: a file is missing or no TOML, has an unknown key or a value of the wrong type, names a
                `.cu` file that does not exist, or one that is listed already.
        """
        by_path: dict[Path, Expectation] = {}
        for path in paths:
            for name, table in _read(path).items():
                source = (path.parent / name).resolve()
                if not source.is_file():
                    raise ExpectationError(f"{path}: there is no file {name!r} beside it")
                if source in by_path:
                    raise ExpectationError(f"{path}: {name!r} is listed a second time")
                by_path[source] = _expectation(f"{path}: [{name!r}]", table)
        return cls(by_path)

    def for_path(self, path: Path) -> Expectation | None:
        """Return what is expected of a `.cu` file, or None where nothing is."""
        return self._by_path.get(path.resolve())


def _read(path: Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExpectationError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: not valid TOML: {error}") from error
    return tables


def _expectation(where: str, table: Any) -> Expectation:
    if not isinstance(table, dict):
        raise ExpectationError(f"{where} must be a table with the keys {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            raise ExpectationError(f"{where}: unknown key {key!r}; there are {', '.join(_KEYS)}")
    fails, passes, points = table.get("fails", {}), table.get("passes", []), table.get("points")
    later = table.get("later", "")
    if not isinstance(fails, dict) or not all(isinstance(code, str) for code in fails.values()):
        raise ExpectationError(f"{where}: `fails` must map a check to the code of its finding")
    if not isinstance(passes, list) or not all(isinstance(check, str) for check in passes):
        raise ExpectationError(f"{where}: `passes` must be a list of checks")
    if points is not None and (isinstance(points, bool) or not isinstance(points, int | float)):
        raise ExpectationError(f"{where}: `points` must be a number")
    if not isinstance(later, str):
        raise ExpectationError(f"{where}: `later` must be the kind of a check")
    return Expectation(ExpectedFailures(fails, passes), None if points is None else float(points), later)
