"""The names that learning platforms give to students' files when they export them."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from pytest_gpulab.grading.catalogue import stems_of

from .entries import MAX_NAME_BYTES, READ, Entry, suffix_of

# Students' and groups' names may contain `_` and end with a short number. The student chooses the file's name, so the
# first match counts. A text or link that was handed in has no number of a file.
_OF_CANVAS = re.compile(
    r"(?:(?P<name>.+?(?:_\d{1,3}(?=_\d+_\d+_))?)(?P<late>_LATE)?_(?P<id>\d+)|(?P<late_too>LATE_)?anon_(?P<anonymous>\w{5}))"
    r"_(?:\d+_(?P<file>.+\.\w+)|(?P<text>(?:text|link)\.html))"
)
# The first match counts: the student chooses the file name after it, which may contain the same words.
_OF_MOODLE = re.compile(r"(?P<student>.+?_\d+_assignsubmission_(?:file|onlinetext))_(?P<file>.+)")
_ONLINE_TEXT, _FILES = "_assignsubmission_onlinetext", "_assignsubmission_file"
_OF_BLACKBOARD = re.compile(r"(?P<head>.+?_.+?)_attempt_(?P<time>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|(?P<text>\.txt))")
_OF_BRIGHTSPACE = re.compile(r"(?P<student>\d+-\d+ ?- .+? ?- [^-]*\b\d{4}\b[^-]*) - (?P<file>.+)")
# The parts are the user, then the number of the assessment, the question, which may contain `/`, and the numbers of its
# variant, the attempt and the file; or, for manual grading, the user's id, the question and the number of the file.
_OF_PRAIRIELEARN = re.compile(
    r"(?P<student>[^@/]+@[^_/]+)_(?:\d+_.+?_\d+_\d+|[^_/]*_.+?(?=_\d+_(?!\d+_)))_(?P<number>\d+)_(?P<file>[^/]+)"
)
_FOLDER_OF_PRAIRIELEARN = re.compile(r"[^@]+@[^_]+_\d+_.+")  # with a part of a question's name
_NAMING_STUDENTS = (_OF_MOODLE, _OF_BLACKBOARD, _OF_BRIGHTSPACE, _OF_PRAIRIELEARN, _OF_CANVAS)
_LONGEST = 2 * MAX_NAME_BYTES  # bounds the time of these searches: a ZIP's names may be very long
_LATE_IN_ILIAS = re.compile(r"(?:late submission|verspatete abgabe) - (?=.)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d+)")


def in_a_folder(entry: Entry, exercises: Collection[str]) -> Entry:
    """Return a file that a platform named after its student as an entry of that student's folder.

    Moodle writes `Ada Lovelace_4711_assignsubmission_file_scan.cu`, Canvas `lovelaceada_4711_815_scan-1.cu`, where 815
    is the file's number and -1 counts attempts, Blackboard `Scan_alovelace_attempt_2026-03-01-12-00-00_scan.cu`,
    Brightspace `4711-3322 - Ada Lovelace - Mar 1, 2026 1105 AM - scan.cu`, PrairieLearn
    `ada@x.org_1_scan_1_2_98765_scan.cu`. `exercises` are their names in lower case.
    """
    path = "/".join(entry.parts)
    if entry.is_folder or len(path) > _LONGEST:
        return entry
    is_flat = len(entry.parts) == 1
    if is_flat and (named := _OF_MOODLE.fullmatch(path) or _OF_BRIGHTSPACE.fullmatch(path)):
        return replace(entry, parts=(named["student"], named["file"]))
    if is_flat and (blackboard := _OF_BLACKBOARD.fullmatch(path)):
        parts = (blackboard["head"], blackboard["file"] or path)
        return replace(entry, parts=parts, modified_s=_attempted_s(blackboard["time"]), exported=path)
    if prairielearn := _OF_PRAIRIELEARN.fullmatch(path):
        parts = (prairielearn["student"], prairielearn["file"])
        return replace(entry, parts=parts, exported=path, attempt=int(prairielearn["number"]))
    if not is_flat:
        return _without_lateness(entry)
    if canvas := _OF_CANVAS.fullmatch(path):
        file, attempt = _without_attempt(canvas["file"] or canvas["text"], exercises)
        return replace(
            entry,
            parts=(f"{canvas['name'] or 'anon'}_canvas_{canvas['id'] or canvas['anonymous']}", file),
            exported=path,
            attempt=attempt,
            is_late=bool(canvas["late"] or canvas["late_too"]),
        )
    return entry


def _without_lateness(entry: Entry) -> Entry:
    """Return the entry without the mark of ILIAS, `Late Submission - scan.cu`."""
    *folders, name = entry.parts
    late = _LATE_IN_ILIAS.match(name)
    return replace(entry, parts=(*folders, name[late.end() :]), is_late=True) if late else entry


def _without_attempt(name: str, exercises: Collection[str]) -> tuple[str, int]:
    """Return a file's name without Canvas' mark of an attempt, and the number of earlier attempts.

    An exercise's own name may end like that mark, and a student's own file may be a marked one of an earlier download.
    """
    attempt = 0
    while not any(stem in exercises for stem in stems_of(name)):
        numbered = _NUMBERED.fullmatch(Path(name).stem)
        if numbered is None:
            break
        name, attempt = numbered["stem"] + Path(name).suffix, attempt or int(numbered["number"])
    return name, attempt


def folders_around(names: Sequence[Sequence[str]], exercises: Collection[str], least: int) -> tuple[str, ...]:
    """Return the folders around a class, the outermost first, given its paths in parts.

    Each is the only one beside its files. The last one holds students: several ZIPs or folders with `.cu` files, which
    are not named after `exercises` (in lower case), or a file that a platform named after a student. The outermost
    folder needs `least` such folders with `.cu` files.
    """
    around: tuple[str, ...] = ()
    for depth in count(1):
        inner = [parts for parts in names if len(parts) > depth]
        if len({parts[depth - 1] for parts in inner}) != 1:
            return around
        if _holds_a_class([parts[depth:] for parts in inner], exercises, least if depth == 1 else 2):
            around = tuple(inner[0][:depth])
    raise AssertionError


def _holds_a_class(names: Iterable[Sequence[str]], exercises: Collection[str], least: int) -> bool:
    read = [(len(parts), parts[0]) for parts in names if suffix_of(parts[-1]) in READ]
    folders = {name for length, name in read if length > 1}
    files = [name for length, name in read if length == 1]
    zips = {Path(name).stem for name in files if suffix_of(name) == ".zip"}
    students, packed = ([name for name in found if name.casefold() not in exercises] for found in (folders, zips))
    is_named = any(pattern.fullmatch(name) for name in files for pattern in _NAMING_STUDENTS)
    return len(students) >= least or len(packed) > 1 or is_named


def by_username(by_student: Mapping[str, list[Entry]]) -> dict[str, list[Entry]]:
    """Return the entries by student, those of Blackboard without the assignment before the username.

    Both may contain `_`. The assignment is the longest beginning that several names share.
    """
    cuts = {
        name: [at.start() for at in re.finditer("_", name)][::-1]
        for name, (first, *_) in by_student.items()
        if _OF_BLACKBOARD.fullmatch(first.exported.partition("/")[0])
    }
    shared = Counter(name[:cut] for name in cuts for cut in cuts[name])
    renamed: dict[str, list[Entry]] = defaultdict(list)
    for name, found in by_student.items():
        cut = next((cut for cut in cuts.get(name, ()) if shared[name[:cut]] > 1), cuts.get(name, [-1])[0])
        renamed[name[cut + 1 :]] += [replace(each, parts=(name[cut + 1 :], *each.parts[1:])) for each in found]
    return renamed


def without_texts(by_student: dict[str, list[Entry]]) -> dict[str, list[Entry]]:
    """Return the entries by student without the texts that platforms write beside files.

    They are Moodle's folder of a student's online text, and Blackboard's note on an attempt. Without files, they stay:
    the student has handed in something. Folders that PrairieLearn names after a part of a question are left out, too.
    """
    texts = {name: name.replace(_ONLINE_TEXT, _FILES) for name in by_student if _ONLINE_TEXT in name}
    for name, files in texts.items():
        others = [each for each in by_student[name] if not each.is_folder and each.parts[-1] != "onlinetext.html"]
        if files in by_student and not others:
            del by_student[name]
    return {
        name: [each for each in found if not _is_note(each)] or found
        for name, found in by_student.items()
        if not (_FOLDER_OF_PRAIRIELEARN.fullmatch(name) and all(each.is_folder for each in found))
    }


def _is_note(entry: Entry) -> bool:
    blackboard = _OF_BLACKBOARD.fullmatch(entry.exported)
    return blackboard is not None and blackboard["text"] is not None


def _attempted_s(time: str) -> float:
    """Return the time of a Blackboard attempt, read as UTC; 0 if the date is invalid."""
    with suppress(ValueError):
        return datetime.strptime(time, "%Y-%m-%d-%H-%M-%S").replace(tzinfo=timezone.utc).timestamp()
    return 0.0
