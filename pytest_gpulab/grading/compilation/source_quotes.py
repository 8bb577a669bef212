"""Source lines and compiler warnings, added to a submission's findings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from pytest_gpulab.grading.findings import finding, plain
from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Finding

MAX_LINE = 90  # most characters of a quoted line
MAX_WARNINGS = 4
_WARNING = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): warning #(?P<number>\d+)-D: (?P<text>.*)$", re.M)
_INDEXED = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\[")
_LOCAL_ARRAY = r"^\s*(?!return\b)[A-Za-z_][\w:<>,\s]*\s{0}\s*\[[^\]]*\]\s*[\[;={{,]"
_MINOR = ("177", "550")  # an unused variable explains little


class Quotes:
    """The lines of a submission, to quote in its findings."""

    def __init__(self, filename: str, source: str) -> None:
        """Split the source; empty if there is none."""
        self._filename, self._lines = filename, source.splitlines()

    def added_to(self, result: CheckResult, logs: Iterable[str]) -> CheckResult:
        """Return a check's result with the lines that its findings name and, if it failed, the compiler's warnings.

        Args:
            result: the result of a check.
            logs: the compiler's messages for each variant.
        """
        findings = tuple(map(self._with_line, result.findings))
        has_failed = result.verdict == "failed" and not any(found.because for found in findings)
        if has_failed and result.kind != "compile" and not result.hidden:
            findings += self.warnings(logs)
        return replace(result, findings=findings)

    def warnings(self, logs: Iterable[str]) -> tuple[Finding, ...]:
        """Return the most important warnings of the submission's own lines, each once."""
        found = {match.group("line", "number", "text"): match for log in logs for match in _WARNING.finditer(log)}
        mine = [match for match in found.values() if match["file"] == self._filename]
        mine.sort(key=lambda match: (match["number"] in _MINOR, int(match["line"])))
        return tuple(map(self._warning, mine[:MAX_WARNINGS]))

    def _warning(self, match: re.Match[str]) -> Finding:
        what = f"{match['text'][:1].upper()}{match['text'][1:]} (#{match['number']}-D)."
        return self._with_line(finding(COMPILER_WARNING, what, f"{self._filename}:{match['line']}"))

    def _with_line(self, found: Finding) -> Finding:
        file, _, line = found.where.rpartition(":")
        if found.because or found.code == "compile-error" or file != self._filename or not line.isdecimal():
            return found
        declared = self._local_arrays(int(line)) if found.code == "out-of-bounds" and "__local__" in found.what else ()
        return replace(found, line=self._line(int(line)), evidence=(*found.evidence, *declared))

    def _local_arrays(self, number: int) -> tuple[str, ...]:
        """Return the declarations of a thread's own arrays in a line. PTX has one name for all arrays of a function."""
        names = dict.fromkeys(_INDEXED.findall("".join(self._lines[number - 1 : number])))
        declared = {}
        for name in names:
            for at, text in enumerate(self._lines[:number], 1):
                if re.search(_LOCAL_ARRAY.format(name), text):
                    declared[name] = at
        own = {name: at for name, at in declared.items() if "__" not in self._lines[at - 1]}  # as in `__shared__`
        return tuple(f"`{name}` is declared in line {at}: {self._line(at)}" for name, at in own.items())

    def _line(self, number: int) -> str:
        """Return a line of the source without its indentation, with spaces for other white space."""
        if not 0 < number <= len(self._lines):
            return ""
        text = " ".join(plain(self._lines[number - 1]).split())
        return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} ..."
