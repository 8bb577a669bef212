"""Device code that uses host code: names in the compiler's messages that are host code or parts of host libraries."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_gpulab.devices.source.host_code import DeviceText
from pytest_gpulab.grading.findings import finding, listed
from pytest_gpulab.grading.grade import Finding

_ERROR = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)(?:\((?P<line>\d+)\))?: (?:[a-z]+ )?error(?: #[\w-]+)?: (?P<text>.*)$", re.M
)
_NAMED = (
    re.compile(r'namespace "std" has no member "(?P<std>\w+)"'),
    re.compile(r'identifier "(?:\w+::)*(?P<name>\w+)[^"]*" is undefined'),
    re.compile(r'calling a __host__ function\("(?:.*[ :~])?(?P<name>\w+)(?: ?<[^"]*>)? ?(?:\([^"]*\))?"\) from a'),
    re.compile(r"the function `(?:\w+::)*(?P<name>\w+)` is called, but not defined"),
)
_DELETED = re.compile(
    r'(?:function|constructor of) "(?P<name>[\w:~<>, ]+)[^"]*"(?: \(declared at line (?P<at>\d+)[^)]*\))?'
    r" cannot be referenced -- it is a deleted function"
)
_ON_LINE = re.compile(r'type name is not allowed|name followed by "::"|qualified name is not allowed')
_LIBRARY = re.compile(
    r"cuda[A-Z]\w*|omp_\w+|std|thrust|FILE|c(?:in|out|err|log)|endl|stderr|stdout|f?(?:open|close|puts|scanf)|[fs]n?printf"
    r"|s?rand(?:om)?|drand48|exit|abort|getenv|time|gettimeofday|u?sleep|ato[fil]|strto\w+|getchar|putchar"
    r"|(?:basic_)?string|vector|map|set|list|deque|queue|stack|unordered_\w+|shared_ptr|unique_ptr|function|thread|mutex"
    r"|sort|swap|accumulate|to_string|runtime_error"
)


class _Use(NamedTuple):
    name: str
    declared: int | None
    line: int | None


def host_use(diagnostics: str, code: DeviceText, source: str, filename: str) -> Finding | None:
    """Return the finding of device code that uses host code, if that is the compiler's first error; else None."""
    errors = list(_ERROR.finditer(diagnostics))
    first = next((list(_uses(error, code, source, filename)) for error in errors), [])
    if not first:
        return None
    found: dict[str, _Use] = {}
    for error in errors:
        for use in _uses(error, code, source, filename):
            found.setdefault(use.name, use)
    uses = list(found.values())
    what = f"Device code uses {_listed(uses)}, which {'is' if len(uses) == 1 else 'are'} host code."
    where = f"{filename}:{first[0].line}" if first[0].line else ""
    return finding("host-code-used", what, where, diagnostics.splitlines(), " ".join(_hints(uses)))


def _uses(error: re.Match[str], code: DeviceText, source: str, filename: str) -> Iterator[_Use]:
    text, line = error["text"], int(error["line"]) if error["line"] else None
    if line is not None and error["file"] != filename:
        return
    if deleted := _DELETED.search(text):
        at = int(deleted["at"]) if deleted["at"] else None
        name = deleted["name"].strip()
        yield _Use(f"{name}::{name}" if "constructor of" in text else name, at, line)
    elif _ON_LINE.search(text) and line is not None:
        words = dict.fromkeys(re.findall(r"(?:std::)?\b[A-Za-z_]\w*", source.splitlines()[line - 1]))
        yield from (_Use(word, code.host_names.get(word), line) for word in words if _is_host(word, code))
    for pattern in _NAMED:
        if found := pattern.search(text):
            name = f"std::{found['std']}" if "std" in pattern.groupindex else found["name"]
            if _is_host(name, code) or "is undefined in device code" in text:
                yield _Use(name, code.host_names.get(name), line)
            return


def _is_host(name: str, code: DeviceText) -> bool:
    return name in code.host_names or _is_library(name)


def _listed(uses: Iterable[_Use]) -> str:
    return listed((f"`{use.name}`{f' (line {use.declared})' if use.declared else ''}" for use in uses), "and")


def _hints(uses: Iterable[_Use]) -> Iterator[str]:
    known = [use.declared is not None or not _is_library(use.name) for use in uses]
    if any(known):
        yield (
            "Mark a function `__device__`, a number that never changes `constexpr`, and an array `__constant__` or "
            "`__device__`. Pass other values as parameters of the kernel."
        )
    if not all(known):
        yield "Libraries of the host have no device code. Kernels use arrays, `printf` and CUDA's functions."


def _is_library(name: str) -> bool:
    return name.startswith("std::") or _LIBRARY.fullmatch(name) is not None
