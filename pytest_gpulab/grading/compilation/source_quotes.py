"""Source lines, empty bodies and compiler warnings, added to a submission's findings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_gpulab.grading.findings import HINTS, finding, plain
from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Finding

MAX_LINE = 90  # most characters of a quoted line
MAX_WARNINGS = 4
# The second form is that of the compiler's later stages.
_WARNING = re.compile(
    r"^(?:warning: )?(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:warning #(?P<number>\d+)-D|Warning): (?P<text>.*)$",
    re.M,
)
_INDEXED = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\[")
_LOCAL_ARRAY = r"^\s*(?!return\b)[A-Za-z_][\w:<>,\s]*\s{0}\s*\[[^\]]*\]\s*[\[;={{,]"
_MINOR = ("177", "550")  # an unused variable explains little
_TRAPPED = "The kernel stopped itself with __trap()"
PRIVATE_ATOMIC = "An atomic function was called on memory that is private to the thread"
CONSTANT_WRITTEN = "The kernel writes to `__constant__` memory"
_CAUSES_OF_TRAPS = {
    "Cannot do atomic on local memory": (
        PRIVATE_ATOMIC,
        "A variable or an array without `__shared__` is private to each thread: no other thread sees it. The compiler "
        "stops the kernel where an atomic function is called on it.",
    ),
    "Cannot store to pointer that points to constant memory space": (
        CONSTANT_WRITTEN,
        "Only host code can change a `__constant__` variable, between launches. The compiler stops the kernel where it "
        "writes to one.",
    ),
}
"""The compiler's warnings about the traps that it inserts, to what is wrong and a hint."""

LOCKED_LINES = 8  # at most from a race to the lines that take and release a lock
LOCK_HINT = (
    "A lock orders the accesses of its holders only with fences: call __threadfence() after taking the lock and before "
    "releasing it."
)

_OF_A_WARP = re.compile(r"__syncwarp\s*\(|\b(\w+)\s*=\s*[\w:]*\btiled_partition\b.*(?:\b\1\.sync|\bsync\(\1)\b", re.S)
WARP_HINT = (
    "__syncwarp(), or the sync() of a tile, waits for threads of one warp only. Where threads of different warps use "
    "the same element, one of them must wait at a __syncthreads()."
)


_HEAD = re.compile(r"\s*(?:(?:\}\s*)?else\s+)?(if|for|while)\s*(?=\()")
_NOTHING = re.compile(r"\s*;\s*(\{)?\s*(?://.*|/\*.*)?$")
EMPTY_HINT = "A semicolon behind an `if`, `for` or `while` is its whole body: the code below it runs in any case."


class Quotes:
    """The lines of a submission, to quote in its findings."""

    def __init__(self, filename: str, source: str) -> None:
        """Split the source; empty if there is none."""
        self._filename, self._lines = filename, source.splitlines()
        self._empty = tuple(_empty_bodies(self._lines))

    def added_to(self, result: CheckResult, logs: Iterable[str]) -> CheckResult:
        """Return a check's result with the lines that its findings name and, if it failed, the compiler's warnings.

        `logs` are the compiler's messages for each variant.
        """
        logs = tuple(logs)
        findings = tuple(self._with_line(self._with_cause(found, logs)) for found in result.findings)
        has_failed = result.verdict == "failed" and not any(found.because for found in findings)
        if has_failed and self._empty and result.kind in ("compile", "correct", "safe"):
            lines = tuple(f"line {at} has nothing to execute: {self._line(at)}" for at in self._empty[:MAX_WARNINGS])
            findings = tuple(replace(each, evidence=(*each.evidence, *lines), hint=EMPTY_HINT) for each in findings)
        if has_failed and result.kind != "compile" and not result.hidden:
            findings += self.warnings(logs)
        return replace(result, findings=findings)

    def warnings(self, logs: Iterable[str]) -> tuple[Finding, ...]:
        """Return the most important warnings of the submission's own lines, each once."""
        found = {match.group("line", "number", "text"): match for log in logs for match in _WARNING.finditer(log)}
        mine = [match for match in found.values() if match["file"] == self._filename]
        mine.sort(key=lambda match: (match["number"] in _MINOR, int(match["line"])))
        return tuple(map(self._warning, mine[:MAX_WARNINGS]))

    def _with_cause(self, found: Finding, logs: Iterable[str]) -> Finding:
        """Return the cause of a __trap() that the compiler inserted, at the line of its warning."""
        is_by_compiler = found.code == "trap" and not any("trap" in line for line in self._lines)
        warning = next((each for each in _CAUSES_OF_TRAPS if any(each in log for log in logs)), "")
        if not is_by_compiler or not warning:
            return found
        place = next((each.where for each in self.warnings(logs) if warning in each.what), "")
        cause, hint = _CAUSES_OF_TRAPS[warning]
        what, hint = found.what.replace(_TRAPPED, cause), "" if found.because else hint
        return replace(found, what=what, where=place or found.where, hint=hint)

    def _warning(self, match: re.Match[str]) -> Finding:
        number = f" (#{match['number']}-D)" if match["number"] else ""
        what = f"{match['text'][:1].upper()}{match['text'][1:]}{number}."
        return self._with_line(finding(COMPILER_WARNING, what, f"{self._filename}:{match['line']}"))

    def _with_line(self, found: Finding) -> Finding:
        file, _, line = found.where.rpartition(":")
        if found.because or found.code == "compile-error" or file != self._filename or not line.isdecimal():
            return found
        if found.code == "race" and self._is_locked(int(line)):
            found = replace(found, hint=LOCK_HINT)
        if found.hint == HINTS["race"] and _OF_A_WARP.search("\n".join(self._lines)):
            found = replace(found, hint=WARP_HINT)
        declared = self._local_arrays(int(line)) if "__local__" in found.what else ()
        return replace(found, line=self._line(int(line)), evidence=(*found.evidence, *declared))

    def _is_locked(self, number: int) -> bool:
        """Return whether a line is probably between those that take and release a lock."""
        before, after = self._lines[max(0, number - LOCKED_LINES) : number - 1], self._lines[number:][:LOCKED_LINES]
        return any("atomicCAS" in line for line in before) and any("atomicExch" in line for line in after)

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


def _empty_bodies(lines: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of lines such as `if (i < n);`.

    A loop may do all its work in its head: it counts only if the next line looks like its body.
    """
    for at, line in enumerate(lines):
        head = _HEAD.match(line)
        nothing = head and _NOTHING.match(line, _after_brackets(line, head.end()))
        if not head or not nothing:
            continue
        below = next((text for text in lines[at + 1 :] if text.strip()), "")
        is_body = nothing[1] or below.lstrip().startswith("{") or _indent(below) > _indent(line)
        if is_body or (head[1] == "if" and not below.lstrip().startswith("else")):
            yield at + 1


def _after_brackets(line: str, start: int) -> int:
    """Return the index behind the bracket that closes the one at `start`; the end of the line without one."""
    depth = 0
    for at, sign in enumerate(line[start:], start):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return at + 1
    return len(line)


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())
