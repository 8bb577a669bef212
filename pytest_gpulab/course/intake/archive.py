"""ZIP exports of learning platforms, unpacked without trust in their contents.

No name in a ZIP becomes a folder on this machine: each file is written to its own new folder below a private one. So
neither `..`, nor a second file of the same name, nor a name that differs only in case can overwrite anything. Files
that are never read are not unpacked. Limits apply to a file's size and compression ratio, and to the number and bytes
of the files of each student.
"""

import calendar
import contextlib
import re
import stat
import struct
import tempfile
import textwrap
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pytest_gpulab.grading.grade import Finding

from . import entries
from .entries import Entry
from .exported_names import folders_around

MAX_MEMBERS = 500_000
"""Members of a ZIP; no class has more."""
MAX_STUDENT_BYTES = 64 << 20
"""Unpacked bytes of the files of one student that are read."""
MAX_RATIO = 200
"""Compression ratio of a file: sources reach 10, zeros 1000."""
UNSUSPICIOUS_BYTES = 1 << 16  # smaller files may have any ratio, because repetitive text compresses well
MAX_MESSAGE_CHARS = 120

_DRIVE = re.compile(r"[A-Za-z]:")
_ENCRYPTED, _UTF8 = 0x1, 0x800  # of a member's flags
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile decompresses the others without a limit per read
_DAMAGED = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError, struct.error, zlib.error,
)  # fmt: skip
_HINT = "Pack the files again, as a plain ZIP without a password."


class BadArchive(Exception):
    """A file that is no ZIP, is damaged, or has too many members; the message is one sentence."""


class CannotUnpack(Exception):
    """The files of a ZIP cannot be written here; the message continues a sentence that begins with the ZIP's name."""


class _Member(NamedTuple):
    parts: tuple[str, ...]
    info: zipfile.ZipInfo
    fault: Finding | None


class Unpacker:
    """An unpacker for the ZIP of a class or of single students; the limits per student apply to all ZIPs together.

    `scratch` is a private folder, which the caller removes once the files have been read.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def of_class(self, archive: Path, exercises: Collection[str]) -> Iterator[Entry]:
        """Yield the entries of the ZIP of a class, without single folders around all of them.

        `exercises` are their names in lower case. Raises BadArchive if the ZIP cannot be read, and CannotUnpack if its
        files cannot be written.
        """
        with _opened(archive) as zipped:
            members = list(_members(zipped))
            depth = len(folders_around([member.parts for member in members], exercises, least=1))
            inner = [member._replace(parts=member.parts[depth:]) for member in members if len(member.parts) > depth]
            beside = (member for member in members if len(member.parts) <= depth and not _is_folder(member))
            yield from self._unpacked(zipped, [*inner, *(each._replace(parts=each.parts[-1:]) for each in beside)])

    def of_student(self, packed: Entry) -> Iterator[Entry]:
        """Yield the entries of a student's ZIP; one beside the students' folders is named after its student.

        A ZIP in this ZIP is not unpacked. Raises CannotUnpack if its files cannot be written.
        """
        student = packed.parts if len(packed.parts) > 1 else (Path(packed.parts[0]).stem,)
        yield Entry(student[:1], is_folder=True)
        assert packed.path is not None
        try:
            file = entries.opened_for_reading(packed.path)
        except OSError as error:  # it has been replaced by a link since
            yield Entry((student[0], packed.parts[-1]), fault=entries.unreadable(error))
            return
        try:
            with file, _opened(file) as zipped:
                inner = [member._replace(parts=(*student, *member.parts)) for member in _members(zipped)]
                yield from self._unpacked(zipped, inner)
        except BadArchive as bad:
            yield Entry((student[0], packed.parts[-1]), fault=_bad(str(bad)))

    def _unpacked(self, zipped: zipfile.ZipFile, members: list[_Member]) -> Iterator[Entry]:
        self._files.update(member.parts[0] for member in members)
        for student in dict.fromkeys(member.parts[0] for member in members):
            if self._files[student] > entries.MAX_FILES:
                yield Entry((student,), is_folder=True, fault=entries.too_many_files())
        for member in members:
            if self._files[member.parts[0]] <= entries.MAX_FILES:
                yield self._entry(zipped, member)

    def _entry(self, zipped: zipfile.ZipFile, member: _Member) -> Entry:
        parts, info, fault = member
        modified_s = _modified_s(info)
        if fault is not None or _is_folder(member):
            return Entry(parts, None, modified_s, _is_folder(member), fault)
        if entries.suffix_of(parts[-1]) not in entries.READ:
            return Entry(parts, None, modified_s)
        fault = _fault_of_contents(info) or self._fault_of_total(parts[0], info.file_size)
        if fault is not None:
            return Entry(parts, None, modified_s, fault=fault)
        try:
            with zipped.open(info) as packed:
                contents = packed.read(info.file_size)  # given a number, zipfile decompresses no more than that
        except _DAMAGED as error:
            return Entry(parts, None, modified_s, fault=_bad(f"It cannot be unpacked: {_message(error)}."))
        return Entry(parts, self._written(parts[-1], contents), modified_s)

    def _fault_of_total(self, student: str, size_bytes: int) -> Finding | None:
        self._bytes[student] += size_bytes
        if self._bytes[student] <= MAX_STUDENT_BYTES:
            return None
        what = f"The student's packed files, up to this one, have more than {MAX_STUDENT_BYTES} bytes."
        return Finding("too-large", what, hint=entries.TOO_LARGE)

    def _written(self, name: str, contents: bytes) -> Path:
        try:
            path = Path(tempfile.mkdtemp(dir=self._scratch)) / entries.name_for_system(name)
            path.write_bytes(contents)
        except OSError as error:
            raise CannotUnpack(f"cannot be unpacked to {self._scratch}: {error.strerror}") from None
        return path


def _opened(archive: Path | BinaryIO) -> zipfile.ZipFile:
    try:
        zipped = zipfile.ZipFile(archive)
    except _DAMAGED as error:
        raise BadArchive(f"It cannot be read as a ZIP: {_message(error)}.") from None
    if len(zipped.infolist()) > MAX_MEMBERS:
        zipped.close()
        raise BadArchive(f"It holds more than {MAX_MEMBERS} files.")
    return zipped


def _members(zipped: zipfile.ZipFile) -> Iterator[_Member]:
    for info in zipped.infolist():
        name = _name(info)
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        if name.startswith("/") or _DRIVE.match(name) or ".." in parts:
            what = "Its path leads outside the ZIP, so it is not unpacked."
            yield _Member((name,), info, Finding("bad-name", what, hint=entries.NAME))
        elif parts and not any(map(entries.is_litter, parts)):
            yield _member(parts, info)


def _member(found: tuple[str, ...], info: zipfile.ZipInfo) -> _Member:
    parts = (entries.student_name(found[0]), *map(entries.part_name, found[1:]))
    for end, part in enumerate(parts, 1):
        fault = entries.fault_of_name(part)
        if fault is not None:
            return _Member(parts[:end], info, fault)
    if len(parts) > entries.MAX_DEPTH + 1:
        return _Member(parts[: entries.MAX_DEPTH + 1], info, entries.too_deep())
    mode = info.external_attr >> 16  # 0 if the ZIP was not made on Unix
    is_plain = stat.S_IFMT(mode) == 0 or stat.S_ISDIR(mode)
    return _Member(parts, info, None if is_plain else entries.fault_of_mode(mode))


def _name(info: zipfile.ZipInfo) -> str:
    """Return a member's name as intended: many programs write UTF-8 or backslashes against the format's rules."""
    name = info.orig_filename
    if not info.flag_bits & _UTF8:
        with contextlib.suppress(UnicodeError):  # otherwise it really is code page 437
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _is_folder(member: _Member) -> bool:
    return member.info.orig_filename.endswith(("/", "\\"))


def _fault_of_contents(info: zipfile.ZipInfo) -> Finding | None:
    if info.flag_bits & _ENCRYPTED:
        return _bad("It is encrypted.")
    if info.compress_type not in _PACKINGS:
        return _bad("Its compression method is not supported.")
    if info.file_size > max(UNSUSPICIOUS_BYTES, MAX_RATIO * info.compress_size):
        what = f"It would grow from {info.compress_size} to {info.file_size} bytes, so it is not unpacked."
        return Finding("too-large", what, hint=entries.TOO_LARGE)
    return entries.fault_of_size(info.orig_filename, info.file_size)


def _message(error: Exception) -> str:
    """Return the error's message, shortened, because a damaged file may make it very long."""
    return textwrap.shorten(str(error), MAX_MESSAGE_CHARS, placeholder=" ...").rstrip(".") or type(error).__name__


def _bad(what: str) -> Finding:
    return Finding("bad-archive", what, hint=_HINT)


def _modified_s(info: zipfile.ZipInfo) -> float:
    """Return the time of change by the packing machine's clock, in steps of 2 s; a ZIP has no time zone."""
    try:
        return float(calendar.timegm((*info.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):  # a ZIP may hold an invalid date such as month 0
        return 0.0
