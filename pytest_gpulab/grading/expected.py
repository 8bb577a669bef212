"""Expected verdicts of known files, read from TOML.

    ["reduction/01_neighbored.cu"]              # a .cu file, relative to the TOML file
    points = 60
    fails = { "speedup[1.5x]" = "too-slow" }    # check -> code of its finding

Missed bonus tiers do not fail and are not listed. In a check's name `*` matches any text, so that
`"*" = "compile-error"` covers a file that does not compile. The most specific entry counts, and checks in
`passes = ["correct[n=1]"]` are exempt. `later = "race"` marks a file with a mistake that only a future check of that
kind can find: until then its other keys hold the verdicts of the present checks.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_gpulab import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = ("fails", "passes", "points", "later")


class ExpectationError(UserError):
    """An invalid file of expected verdicts, explained in one line that names the file."""


class ExpectedFailures(Mapping[str, str]):
    """A mapping of check names to finding codes. Look-ups apply `*` and `passes`; iteration yields the raw entries."""

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


class Expectation(NamedTuple):
    """The expected verdict of one file: the checks that must fail, with their findings, and the points, if stated."""

    fails: Mapping[str, str]
    points: float | None = None
    later: str = ""  # the kind of a future check that will find the file's mistake; usually empty


def is_met(expected: str, codes: Iterable[str]) -> bool:
    """Return whether the expected finding occurred. `time-limit` counts as `endless-loop`: not all devices prove it."""
    accepted = {expected, "time-limit"} if expected == "endless-loop" else {expected}
    return not accepted.isdisjoint(codes)


class Expectations:
    """The expected verdicts of all listed files."""

    def __init__(self, by_path: Mapping[str, Expectation]) -> None:
        self._by_path = dict(by_path)

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Expectations:
        """Read TOML files.

        Raises ExpectationError if a file is missing or not TOML, has an unknown key or a value of the wrong type, names
        a `.cu` file that does not exist, or lists one twice.
        """
        by_path: dict[str, Expectation] = {}
        for path in paths:
            for name, table in read_toml(path, ExpectationError).items():
                source = os.path.realpath(path.parent / name)
                if not Path(source).is_file():
                    raise ExpectationError(f"{path}: there is no file {name!r} beside it")
                if source in by_path:
                    raise ExpectationError(f"{path}: {name!r} is listed a second time")
                by_path[source] = _expectation(f"{path}: [{name!r}]", table)
        return cls(by_path)

    def for_path(self, path: Path) -> Expectation | None:
        """Return the expected verdict of a `.cu` file, or None."""
        return self._by_path.get(os.path.realpath(path))  # `resolve` fails where a link leads to itself


def read_toml(path: Path, error: type[UserError]) -> dict[str, Any]:
    """Return the tables of a TOML file; raise the error, which names the file, if it is missing or not TOML."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise error(f"{path}: cannot be read: {cause.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise error(f"{path}: not valid TOML: {cause}") from None
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
