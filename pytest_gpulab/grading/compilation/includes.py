"""The text of a submission: only headers by plain names may be included, never a path of this machine.

Compilers disagree on where a comment, a string or a joined line ends. So the search ignores these: any text that some
compiler could read as an include must have an accepted form, in comments and strings, too.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_gpulab.devices.source.host_code import BYTE_ORDER_MARK, encoding_of, normalised
from pytest_gpulab.devices.source.tokens import tokens, words_of
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding

MAX_SOURCE_BYTES = 1 << 20  # far more than a kernel needs; bounds the work of the compiler and of this package
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_OTHER_FILES = {
    b"%PDF-": "a PDF document",
    b"PK\3\4": "a ZIP archive or an office document",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a compiled program",
    b"MZ": "a compiled program",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"{\\rtf": "a document in rich text",
}
"""The first bytes of files that students hand in by mistake."""


class Include(NamedTuple):
    """An include directive that is not accepted: its line, from 1, and its operand."""

    line: int
    operand: str


# These patterns do not cross lines or comments: on hostile files, backtracking over them would not end.
_BLANKS = r"[ \t\f\v\r]*"
# `#` is first on its line but for blanks and comments. A comment right after `#` has no honest use.
_DIRECTIVE = re.compile(
    rf"(?:^|\*/){_BLANKS}(?:#|%:){_BLANKS}(?:(?:include|include_next|import|embed)\b|(?=/[*/]))(.*)$", re.MULTILINE
)
_PLAIN = r"""(?:<(?P<angled>[^<>"\n]+)>|"(?P<quoted>[^"\n]+)")"""
_OPERAND = re.compile(rf"{_BLANKS}{_PLAIN}{_BLANKS}(?:/[/*].*)?")
# The operator in its plain form, or a test that it exists. Elsewhere a macro could hide it, or paste it from parts.
_QUESTION = re.compile(r"\b__has_(?:include|include_next|embed)\b[ \t]*\(([^)\n]*)")
_DEFINED = re.compile(r"(?:\bdefined[ \t]*\(?|#[ \t]*ifn?def)[ \t]*__has_\w+[ \t]*")
_OPERATORS = ("__has_include", "__has_include_next", "__has_embed")
_NAMED = re.compile(rf"\b(?:{'|'.join(_OPERATORS)})\b[^\n]*")
_PASTE = re.compile(r"##|%:%:|\?\?=\?\?=")
_WORD = re.compile(r"\b_\w*")
# `#line`, which gives other line numbers or another file name to the lines after it.
_MOVED = re.compile(rf"(?:^|\*/){_BLANKS}(?:#|%:|\?\?=){_BLANKS}(?:line\b|(?=\d))(.*)$", re.MULTILINE)
_ASKED = re.compile(rf"{_BLANKS}{_PLAIN}{_BLANKS}")
_TESTS, _INCLUDES = ("if", "ifdef", "ifndef", "elif"), ("include", "include_next", "import")
# gcc joins lines even if blanks follow the backslash, NVIDIA's compilers do not; a lone CR is a blank or a line end
_JOINTS = (r"\\\n", r"\\\r?\n", r"\\[ \t\f\v\r]*\n")


def read_source(path: Path) -> bytes:
    """Return the bytes of a submission, at most one more than `MAX_SOURCE_BYTES`; the file may be a link to anything.

    Raises OSError if it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MAX_SOURCE_BYTES + 1)


def accepted_text(contents: bytes, filename: str) -> str | Finding:
    """Return the text of a file, or the finding of what is refused: other files of this machine, and `#line`."""
    if len(contents) > MAX_SOURCE_BYTES:
        return finding("too-large", f"The file has more than {MAX_SOURCE_BYTES:,} bytes.")
    kind = next((kind for start, kind in _OTHER_FILES.items() if contents.startswith(start)), "")
    if kind:
        return finding("not-utf8", f"The file is {kind}, not CUDA C++ text.")
    text = contents.decode(encoding_of(contents)).removeprefix(BYTE_ORDER_MARK)
    if text and not text.strip("\0"):
        what = "The file holds NUL characters only: it may not have been saved or copied as a whole."
        return finding("not-utf8", what)
    # without a mark, the first or the second byte of most letters is a NUL, and no other byte
    nuls = contents[::2].count(0), contents[1::2].count(0)
    if contents.startswith(_UTF_16) or (min(nuls) == 0 and max(nuls) * 4 > len(contents)):
        return finding("not-utf8", "The file is UTF-16 text, which compilers cannot read.")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        return finding("not-utf8", f"The file is not text: line {line} has a NUL character.")
    if not text.strip():
        return finding("empty-source", "The file is empty.")
    source = normalised(text)
    return _refused(source, filename) or source


def _refused(source: str, filename: str) -> Finding | None:
    """Return the finding of an include that could read any file of this machine, or of `#line`."""
    found = unaccepted_include(source)
    if found is not None:
        from .compile_errors import strange_sign

        what = f"The file may include headers by their plain names only, not {found.operand}."
        hint = "An exercise's own headers and CUDA's are found by name: no path, no `..`, no macro."
        if "\\" in found.operand:
            hint = "Write `/` in place of `\\`: only Windows has the latter in paths."
        usual = finding("compile-error", what, f"{filename}:{found.line}", hint=hint)
        return (not found.operand.isascii() and strange_sign(source, filename)) or usual
    line = moved_line(source)
    if line is not None:
        hint = "Delete the directive: findings must point to the lines of your file."
        return finding("compile-error", "The file uses `#line`.", f"{filename}:{line}", hint=hint)
    return None


def unaccepted_include(source: str) -> Include | None:
    """Return the first include that is not accepted; plain names such as `<cub/cub.cuh>` or `"paths.cuh"` are.

    Absolute paths, `..` and names from macros could be any file of the machine: a solution, or a file that the
    compiler's messages would quote. A test that such a file exists is refused, too.
    """
    for text in _readings(source):
        for pattern, accepted in ((_DIRECTIVE, _OPERAND), (_QUESTION, _ASKED)):
            for found in pattern.finditer(text):
                header = accepted.fullmatch(found[1])
                if header is None or not _is_plain(header):
                    operand = found[1].strip()
                    return Include(_line_of(source, found[0], operand), operand)
        hidden = _hidden_question(text)
        if hidden is not None:
            return Include(_line_of(source, hidden, hidden), hidden)
    return None


def moved_line(source: str) -> int | None:
    """Return the line of the first `#line` directive, or None. It would falsify lines in messages and listings."""
    for text in _readings(source):
        found = _MOVED.search(text)
        if found:
            return _line_of(source, found[0], found[1].strip())
    return None


def changed_header(source: str, headers: Mapping[str, str], filename: str) -> Finding | None:
    """Return the finding of a macro before an exercise's header that uses its name, unless the header tests for it."""
    for reading in _readings(source) if headers else ():
        found = [each for each in tokens(reading) if each.kind == "directive"]
        macros = [(each.within[1].text, each) for each in found if each.text == "define" and each.within[1:]]
        for header, text in headers.items():
            words = words_of(text) - {word.text for each in tokens(text) if each.text in _TESTS for word in each.within}
            ends = [each.end for each in found if each.text in _INCLUDES and header in reading[each.start : each.end]]
            for name, macro in macros:
                if name in words and macro.end < max(ends, default=0):
                    what = f"The macro `{name}` would change the lines of {header}, which use this name."
                    where = f"{filename}:{_line_of(source, reading[macro.start : macro.end], name)}"
                    return finding("compile-error", what, where, hint="Define it after the include, or rename it.")
    return None


def _hidden_question(text: str) -> str | None:
    """Return the first test for a file's existence in any form but `__has_include(<name>)`, or None."""
    rest = _QUESTION.sub(" ", _DEFINED.sub(" ", text))
    named = _NAMED.search(rest)
    if named:
        return named[0].strip()
    if _PASTE.search(rest):
        parts = (word for word in _WORD.findall(rest) if any(each.startswith(word) for each in _OPERATORS))
        return next(parts, None)
    return None


def _readings(source: str) -> Iterator[str]:
    for joint in _JOINTS:
        joined = re.sub(joint, "", source)
        yield joined
        if "\r" in joined:
            yield joined.replace("\r", "\n")


def _is_plain(header: re.Match[str]) -> bool:
    """Return True if the name is one of a header in the include folders; a quoted name may have no folder."""
    name = header["angled"] or header["quoted"]
    if name.startswith(("/", "~")) or ".." in name or ":" in name or "\\" in name:
        return False
    return header["quoted"] is None or "/" not in name


def _line_of(source: str, directive: str, operand: str) -> int:
    """Return the directive's line; approximate where lines are joined."""
    at = max(source.find(directive.strip()), 0) or max(source.find(operand), 0)
    return source.count("\n", 0, at) + 1
