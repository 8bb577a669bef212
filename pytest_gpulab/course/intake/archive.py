"""A ZIP as learning platforms export it, unpacked without trusting anything in it.

No folder's name in a ZIP ever names one on this machine: each file that is worth reading is written to a new folder of
its own below a private one. So neither `..`, nor a second file of the same name or one that differs in case only,
reaches what is there already. What nobody reads is not unpacked. For the rest there are limits: to a file's size and to
what it may swell to, to the number and to the bytes of all files of one student.
"""

from __future__ import annotations

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

MAX_MEMBERS = 500_000
"""Of a ZIP: more is no class."""
MAX_STUDENT_BYTES = 64 << 20
"""Unpacked, of all the files of one student that are read."""
MAX_SWELLING = 200
"""How many times its packed size a file may have: sources reach 10, zeros 1000."""
UNSUSPICIOUS_BYTES = 1 << 16
MAX_TOLD = 120

_DRIVE = re.compile(r"[A-Za-z]:")
_ENCRYPTED, _UTF8 = 0x1, 0x800  # of a member's flags
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others swell without a limit before one can look
_DAMAGED = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    struct.error,
    zlib.error,
)
_HINT = "Pack the files anew, as a plain ZIP without a password."


class BadArchive(Exception):
    """A file is no ZIP, is damaged, or holds more than any class hands in: one sentence says which."""


class NoRoom(Exception):
    """The machine does not let anything be unpacked: why, in words that follow the ZIP's name."""


class _Member(NamedTuple):
    parts: tuple[str, ...]
    info: zipfile.ZipInfo
    fault: Finding | None


class Unpacker:
    """Unpacks the ZIP of a class or those of single students; what each student may fill is counted over all of them.

    Args:
        scratch: a private folder, which the caller removes when nobody reads the files any more.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def of_class(self, archive: Path, exercises: Collection[str]) -> Iterator[Entry]:
        """Yield what lies in the ZIP of a class, without the one folder around all of it, where there is one.

        A lone folder with folders of `.cu` files in it, or with several ZIPs, is taken for one around all students,
        unless those are called after `exercises`, whose names are in lower case.

        Raises:
            BadArchive: the ZIP cannot be read.
            NoRoom: nor can it be unpacked.
        """
        with _opened(archive) as zipped:
            members = list(_members(zipped))
            if _has_folder_around(members, exercises):
                inner = (member._replace(parts=member.parts[1:]) for member in members if len(member.parts) > 1)
                members = [*inner, *(member for member in members if len(member.parts) == 1 and not _is_folder(member))]
            yield from self._unpacked(zipped, members)

    def of_student(self, packed: Entry) -> Iterator[Entry]:
        """Yield what lies in a ZIP that a student handed in; one beside the students' folders is named after a student.

        A ZIP in this ZIP is left as it is.

        Raises:
            NoRoom: it cannot be unpacked.
        """
        student = packed.parts if len(packed.parts) > 1 else (Path(packed.parts[0]).stem,)
        yield Entry(student[:1], is_folder=True)
        assert packed.path is not None
        try:
            file = entries.opened_for_reading(packed.path)
        except OSError as error:  # it is a link by now
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
                contents = packed.read(info.file_size)  # with a number zipfile unpacks no more than that at a time
        except _DAMAGED as error:
            return Entry(parts, None, modified_s, fault=_bad(f"It cannot be unpacked: {_told(error)}."))
        return Entry(parts, self._written(parts[-1], contents), modified_s)

    def _fault_of_total(self, student: str, size_bytes: int) -> Finding | None:
        self._bytes[student] += size_bytes
        if self._bytes[student] <= MAX_STUDENT_BYTES:
            return None
        what = f"With this one the packed files have more than {MAX_STUDENT_BYTES} bytes."
        return Finding("too-large", what, hint=entries.TOO_LARGE)

    def _written(self, name: str, contents: bytes) -> Path:
        try:
            path = Path(tempfile.mkdtemp(dir=self._scratch)) / name
            path.write_bytes(contents)
        except OSError as error:
            raise NoRoom(f"cannot be unpacked to {self._scratch}: {error.strerror}") from None
        return path


def _opened(archive: Path | BinaryIO) -> zipfile.ZipFile:
    try:
        zipped = zipfile.ZipFile(archive)
    except _DAMAGED as error:
        raise BadArchive(f"It cannot be read as a ZIP: {_told(error)}.") from None
    if len(zipped.infolist()) > MAX_MEMBERS:
        zipped.close()
        raise BadArchive(f"It holds more than {MAX_MEMBERS} files.")
    return zipped


def _members(zipped: zipfile.ZipFile) -> Iterator[_Member]:
    for info in zipped.infolist():
        name = _name(info)
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        if name.startswith("/") or _DRIVE.match(name) or ".." in parts:
            what = "Its name leads out of the ZIP: it is not unpacked."
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
    mode = info.external_attr >> 16  # 0 where the ZIP was not made on a Unix
    is_plain = stat.S_IFMT(mode) == 0 or stat.S_ISDIR(mode)
    return _Member(parts, info, None if is_plain else entries.fault_of_mode(mode))


def _name(info: zipfile.ZipInfo) -> str:
    """Return a member's name as its author wrote it: many write UTF-8 or backslashes although the format forbids it."""
    name = info.orig_filename
    if not info.flag_bits & _UTF8:
        with contextlib.suppress(UnicodeError):  # else it is of the old code page indeed
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _is_folder(member: _Member) -> bool:
    return member.info.orig_filename.endswith(("/", "\\"))


def _has_folder_around(members: list[_Member], exercises: Collection[str]) -> bool:
    deep = [member.parts for member in members if len(member.parts) > 1]
    if len({parts[0] for parts in deep}) != 1:
        return False
    read = [(len(parts), parts[1]) for parts in deep if entries.suffix_of(parts[-1]) in entries.READ]
    folders = {name for length, name in read if length > 2 and name.casefold() not in exercises}
    zips = {Path(name).stem for length, name in read if length == 2 and entries.suffix_of(name) == ".zip"}
    return bool(folders) or len([name for name in zips if name.casefold() not in exercises]) > 1


def _fault_of_contents(info: zipfile.ZipInfo) -> Finding | None:
    if info.flag_bits & _ENCRYPTED:
        return _bad("It is encrypted.")
    if info.compress_type not in _PACKINGS:
        return _bad("It is packed in a way that is not read.")
    if info.file_size > max(UNSUSPICIOUS_BYTES, MAX_SWELLING * info.compress_size):
        what = f"It swells from {info.compress_size} to {info.file_size} bytes: it is not unpacked."
        return Finding("too-large", what, hint=entries.TOO_LARGE)
    return entries.fault_of_size(info.orig_filename, info.file_size)


def _told(error: Exception) -> str:
    """Return the error's words, of which a damaged file may make very many."""
    return textwrap.shorten(str(error), MAX_TOLD, placeholder=" ...").rstrip(".") or type(error).__name__


def _bad(what: str) -> Finding:
    return Finding("bad-archive", what, hint=_HINT)


def _modified_s(info: zipfile.ZipInfo) -> float:
    """Return when the file was changed, by the clock of whoever packed it, in steps of 2 s; a ZIP has no time zone."""
    try:
        return float(calendar.timegm((*info.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):  # there is no month 0, but in a ZIP there may be
        return 0.0
