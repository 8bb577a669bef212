"""The files and folders of a class, uninterpreted; `submissions` interprets them.

Students fill these folders, so nothing in them is trusted. Links are not followed, pipes and devices are not opened,
and names are checked before use. A million files of one student affect no other.
"""

import hashlib
import os
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pytest_gpulab.grading.compilation.includes import MAX_SOURCE_BYTES
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.grading.grade import Finding

MAX_ARCHIVE_BYTES = 16 << 20
"""Packed bytes of one student's ZIP."""
MAX_FILES = 10_000
"""Files and folders of one student."""
MAX_DEPTH = 16  # bounds the search of a hostile tree
MAX_NAME_BYTES = 200  # below the 255 bytes of most file systems
MAX_SHOWN = 203
"""Characters of a name in reports: names in a ZIP may be longer than any file system allows."""

READ = (".cu", ".zip")
"""Extensions of the files that are read, in upper or lower case."""

_LITTER = ("__MACOSX", "Thumbs.db", "desktop.ini")
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
_REORDERING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they make a name look like another

LINK = "Put the file itself there."
TOO_LARGE = HINTS["too-large"]
NAME = "Name it with letters, digits, spaces, - and _."


@dataclass(frozen=True)
class Entry:
    """A file or folder of a class."""

    # path below the folder of the class; the first part is the student's folder, if there are several
    parts: tuple[str, ...]
    path: Path | None = None  # the file with its contents; None if they are not needed, or if there is a `fault`
    modified_s: float = 0.0  # time of the last change, in seconds since 1970
    is_folder: bool = False
    fault: Finding | None = None  # the reason why it cannot be read
    exported: str = ""  # its name in a platform's export, if `parts` were derived from that
    attempt: int = 0  # number of earlier attempts, according to the platform
    is_late: bool = False  # whether it is late, according to the platform

    @property
    def suffix(self) -> str:
        """The extension of its name, with the dot, in lower case."""
        return suffix_of(self.parts[-1])

    @property
    def label(self) -> str:
        """Its path, printable."""
        return _label(self.parts)

    @property
    def label_below(self) -> str:
        """Its path in its student's folder, printable."""
        return _label(self.parts[1:])

    @property
    def exported_label(self) -> str:
        """Its name in the export, printable; each of several attempts has its own."""
        return _label(self.exported.split("/")) if self.exported else self.label


def suffix_of(name: str) -> str:
    """Return the extension of a name, with the dot, in lower case, because some systems write `.CU`."""
    return Path(name).suffix.lower()


def is_litter(name: str) -> bool:
    """Return whether a name is hidden or belongs to a system's own files."""
    return name.startswith(".") or name in _LITTER


def printable(name: str) -> str:
    """Return the name with escapes for control, invisible and reordering characters."""
    return "".join(
        _escaped(sign) if unicodedata.category(sign) in _UNPRINTABLE or sign in _REORDERING else sign for sign in name
    )


def name_in_utf_8(name: str) -> str:
    """Return a name that the system has returned as UTF-8 text, also where the locale has ASCII only."""
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def name_for_system(name: str) -> str:
    """Return a name with escapes for the letters that the locale cannot encode, for files and variables."""
    encoding = sys.getfilesystemencoding()
    return name.encode(encoding, "backslashreplace").decode(encoding)


def part_name(name: str) -> str:
    """Return the name of a file or folder as reports and ids use it.

    Unicode is normalised (NFC). Unprintable characters, and bytes that are not UTF-8, are escaped, so that files with
    such names can be graded.
    """
    return printable(unicodedata.normalize("NFC", name))


def student_name(name: str) -> str:
    """Return the name of a student's folder; a long one is shortened, and a part of its hash keeps it unique."""
    name = part_name(name)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.encode()[: MAX_NAME_BYTES // 2].decode(errors='ignore')}-{digest}"


def fault_of_name(name: str) -> Finding | None:
    """Return the finding for an unusable name of a file or folder, None for a usable one."""
    if (size_bytes := len(name.encode(errors="surrogateescape"))) > MAX_NAME_BYTES:
        return Finding("bad-name", f"The name has {size_bytes} bytes; at most {MAX_NAME_BYTES} are read.", hint=NAME)
    return None


def fault_of_size(name: str, size_bytes: int) -> Finding | None:
    """Return the finding for a file that is too large, else None."""
    limit_bytes = MAX_ARCHIVE_BYTES if suffix_of(name) == ".zip" else MAX_SOURCE_BYTES
    if size_bytes <= limit_bytes:
        return None
    what = f"The file has {size_bytes} bytes; at most {limit_bytes} are read."
    return Finding("too-large", what, hint=TOO_LARGE)


def unreadable(error: OSError) -> Finding:
    """Return the finding for a file that the system cannot read."""
    hint = "This is not the student's fault. Check the file's permissions."
    return Finding("unreadable", f"It cannot be read: {error.strerror}.", hint=hint)


def too_deep() -> Finding:
    """Return the finding for a folder that is nested too deeply."""
    return Finding("too-deep", f"Folders below {MAX_DEPTH} others are not searched.")


def too_many_files() -> Finding:
    """Return the finding for a student with too many files."""
    return Finding("too-many-files", f"There are more than {MAX_FILES} files, so none is read.", hint=TOO_LARGE)


def of_folder(folder: Path) -> Iterator[Entry]:
    """Yield the entries of the folder of a class, student by student in the order of names.

    Raises OSError if the folder itself cannot be read.
    """
    for child in _children(folder):
        yield from _of_student(child)


def of_paths(paths: Iterable[Path], student: str, skipped: Path) -> Iterator[Entry]:
    """Yield the entries of one student: the named files, and everything in the named folders. Missing ones have none.

    `student` is the first part of each entry. The resolved folder `skipped`, such as that of the exercises, is left
    out.
    """
    for path in paths:
        is_folder = path.is_dir() and not path.is_symlink()
        top = (path if is_folder else path.parent).resolve()
        for child in _children(path) if is_folder else _named(path):
            found = _of_student(child, (student,))
            yield from (each for each in found if not top.joinpath(*each.parts[1:]).is_relative_to(skipped))


def _named(path: Path) -> list[os.DirEntry[str]]:
    siblings = _children(path.parent) if path.parent.is_dir() else []
    return [child for child in siblings if child.name == path.name]


def _of_student(child: os.DirEntry[str], above: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Yield one child of the folder and everything below it; only the child, with a fault, if that is too much."""
    found = list(islice(_walked(child, above), MAX_FILES + 1))
    yield from found if len(found) <= MAX_FILES else [replace(found[0], fault=too_many_files())]


def _walked(child: os.DirEntry[str], above: tuple[str, ...]) -> Iterator[Entry]:
    name = name_in_utf_8(child.name)
    parts = (*above, part_name(name) if above else student_name(name))
    try:
        entry = _looked_at(child, parts)
    except OSError as error:
        entry = Entry(parts, fault=unreadable(error))
    try:
        children = _children(child.path, MAX_FILES + 1) if entry.is_folder and entry.fault is None else []
    except OSError as error:
        entry, children = replace(entry, fault=unreadable(error)), []
    yield entry
    for inner in children:
        yield from _walked(inner, parts)


def _children(folder: Path | str, most: int | None = None) -> list[os.DirEntry[str]]:
    """Return what a folder holds, litter aside, sorted; of a large one some of it."""
    with os.scandir(folder) as children:
        enough = list(islice((child for child in children if not is_litter(child.name)), most))
    return sorted(enough, key=lambda child: child.name)


def _looked_at(child: os.DirEntry[str], parts: tuple[str, ...]) -> Entry:
    status = child.stat(follow_symlinks=False)
    is_folder = stat.S_ISDIR(status.st_mode)
    fault = fault_of_name(child.name) if len(parts) > 1 else None
    if fault is None and is_folder and len(parts) > MAX_DEPTH:
        fault = too_deep()
    if fault is None and not is_folder:
        fault = fault_of_mode(status.st_mode)
    is_read = not is_folder and suffix_of(child.name) in READ  # other files are only named in reports
    if fault is None and is_read:
        fault = fault_of_size(child.name, status.st_size)
        opened_for_reading(Path(child.path)).close()
    return Entry(parts, Path(child.path) if is_read and not fault else None, status.st_mtime, is_folder, fault)


def fault_of_mode(mode: int) -> Finding | None:
    """Return the finding for a link, device, pipe or socket; None for a plain file."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISLNK(mode):
        return Finding("link", "It is a link, and links are not followed.", hint=LINK)
    return Finding("not-a-file", "It is a device, a pipe or a socket, not a file.", hint=LINK)


def opened_for_reading(path: Path) -> BinaryIO:
    """Open a file without following links and without waiting for the other end of a pipe.

    Raises OSError if it is a link, or cannot be read.
    """
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")


def _label(parts: Iterable[str]) -> str:
    return "/".join(printable(_shortened(part)) for part in parts)


def _shortened(name: str) -> str:
    half = (MAX_SHOWN - 3) // 2
    return name if len(name) <= MAX_SHOWN else f"{name[:half]}...{name[-half:]}"


def _escaped(sign: str) -> str:
    """Return an escape; a byte that is not UTF-8 was read as a surrogate and is shown as that byte."""
    number = ord(sign) - 0xDC00 if 0xDC80 <= ord(sign) <= 0xDCFF else ord(sign)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
