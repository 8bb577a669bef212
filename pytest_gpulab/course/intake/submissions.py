"""The submissions of a class: the file that counts per student and exercise, and the files that cannot be used.

No file of a student raises an exception here, and none affects the submissions of another student.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pytest_gpulab import UserError
from pytest_gpulab.grading.grade import Finding

from .archive import BadArchive, CannotUnpack, Unpacker
from .entries import Entry, of_folder, of_paths
from .student_files import LAYOUT, NO_ZIP, OTHER_ARCHIVE, HandedIn, StudentFiles, Unusable

_OF_CANVAS = re.compile(
    r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<stem>.+?)(?:-(?P<attempt>\d+))?(?P<suffix>\.\w+)"
)
# The first match counts: the student chooses the file name after it, which may contain the same words.
_OF_MOODLE = re.compile(r"(?P<student>.+?_\d+_assignsubmission_file)_(?P<file>.+)")
_ONLINE_TEXT, _FILES = "_assignsubmission_onlinetext", "_assignsubmission_file"
_OF_BLACKBOARD = re.compile(r"(?P<head>.+?_.+?)_attempt_(?P<time>\d{4}(?:-\d\d){5})_(?P<file>.+)")

ONE_STUDENT = "submission"
"""The name of a student who is graded alone."""
NO_STUDENT = Finding("no-student", "The file is in no student's folder.", hint=f"Move it: {LAYOUT}.")


class SubmissionsError(UserError):
    """A folder or ZIP of a class that cannot be read; the message is one line for the instructor."""


@dataclass(frozen=True)
class Collection:
    """Everything that a class handed in, sorted by student and exercise."""

    submissions: tuple[HandedIn, ...]
    problems: tuple[Unusable, ...]
    students: tuple[str, ...]  # names of all students' folders, also of those without submissions


def handed_in(source: Path, exercises: Iterable[str], scratch: Path) -> Collection:
    """Find the submission of each student and exercise in a class: `<student>/<exercise>[/*].cu`, or a ZIP of it.

    The caller's private folder `scratch` gets unpacked files; it is needed as long as submissions are read. Raises
    SubmissionsError if there is no such folder or ZIP, or it has no student's folder.
    """
    by_name = {name.casefold(): name for name in exercises}
    by_student: dict[str, list[Entry]] = defaultdict(list)
    problems: list[Unusable] = []
    for entry in _entries(source, by_name, scratch):
        if len(entry.parts) > 1 or entry.is_folder:
            by_student[entry.parts[0]].append(entry)
        elif packed := OTHER_ARCHIVE.fullmatch(entry.parts[0]):
            parts = (packed["student"], entry.parts[0])
            by_student[packed["student"]].append(replace(entry, parts=parts, fault=NO_ZIP))
        elif entry.fault is not None:
            problems.append(Unusable("", "", entry.label, entry.fault))
        elif entry.suffix == ".cu":
            problems.append(Unusable("", "", entry.label, NO_STUDENT))
    by_student = _without_online_texts(_by_username(by_student))
    if not by_student:
        raise SubmissionsError(f"{source}: there is no student's folder in it; {LAYOUT}")
    students = [StudentFiles.of(name, found, by_name) for name, found in sorted(by_student.items())]
    submissions = tuple(submission for student in students for submission in student.submissions())
    problems += (problem for student in students for problem in student.problems())
    return Collection(submissions, tuple(dict.fromkeys(problems)), tuple(student.name for student in students))


def handed_in_by_one(paths: Sequence[Path], exercises: Iterable[str], skipped: Path, scratch: Path) -> Collection:
    """Find one student's submission to each exercise in files or folders of them: `<exercise>.cu`, `<exercise>/*.cu`.

    The paths need not exist. The resolved folder `skipped` is not searched. The caller's private folder `scratch` gets
    unpacked files; it is needed as long as submissions are read. Raises OSError if a folder cannot be read.
    """
    unpacker, name = Unpacker(scratch), ONE_STUDENT
    found: list[Entry] = []
    for entry in of_paths(paths, name, skipped):
        is_packed = entry.suffix == ".zip" and entry.path is not None
        found += _unpacked(unpacker, entry) if is_packed else (entry,)
    student = StudentFiles.of(name, found, {exercise.casefold(): exercise for exercise in exercises})
    return Collection(tuple(student.submissions()), tuple(student.problems()), (name,))


def _entries(source: Path, exercises: Names[str], scratch: Path) -> Iterator[Entry]:
    unpacker = Unpacker(scratch)
    if not source.exists():
        raise SubmissionsError(f"{source}: there is no such folder or ZIP")
    try:
        found = of_folder(source) if source.is_dir() else unpacker.of_class(source, exercises)
        for entry in map(_in_a_folder, found):
            is_packed = entry.suffix == ".zip" and entry.path is not None
            yield from _unpacked(unpacker, entry) if is_packed else (entry,)
    except OSError as error:
        raise SubmissionsError(f"{source}: cannot be read: {error.strerror}") from None
    except CannotUnpack as error:
        raise SubmissionsError(f"{source}: {error}") from None
    except BadArchive as bad:
        raise SubmissionsError(f"{source}: neither a folder nor a ZIP of one. {bad}") from None


def _unpacked(unpacker: Unpacker, packed: Entry) -> Iterator[Entry]:
    """Yield the entries of a student's ZIP, with the platform's data about the ZIP."""
    for entry in unpacker.of_student(packed):
        exported = "/".join((packed.exported, *entry.parts[2:])) if packed.exported else ""
        yield replace(entry, exported=exported, attempt=packed.attempt, is_late=packed.is_late)


def _in_a_folder(entry: Entry) -> Entry:
    """Return a file that a platform named after its student as an entry of that student's folder.

    Moodle writes `Ada Lovelace_4711_assignsubmission_file_scan.cu`, Canvas `lovelaceada_4711_815_scan-1.cu`, where 815
    is the file's number and -1 counts attempts, Blackboard `Scan_alovelace_attempt_2026-03-01-12-00-00_scan.cu`.
    """
    if len(entry.parts) > 1 or entry.is_folder:
        return entry
    if moodle := _OF_MOODLE.fullmatch(entry.parts[0]):
        return replace(entry, parts=(moodle["student"], moodle["file"]))
    if blackboard := _OF_BLACKBOARD.fullmatch(entry.parts[0]):
        parts = (blackboard["head"], blackboard["file"])
        return replace(entry, parts=parts, modified_s=_attempted_s(blackboard["time"]), exported=entry.parts[0])
    if canvas := _OF_CANVAS.fullmatch(entry.parts[0]):
        return replace(
            entry,
            parts=(f"{canvas['name']}_canvas_{canvas['id']}", canvas["stem"] + canvas["suffix"]),
            exported=entry.parts[0],
            attempt=int(canvas["attempt"] or 0),
            is_late=canvas["late"] is not None,
        )
    return entry


def _by_username(by_student: Mapping[str, list[Entry]]) -> dict[str, list[Entry]]:
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


def _without_online_texts(by_student: dict[str, list[Entry]]) -> dict[str, list[Entry]]:
    """Return the entries by student; Moodle's folder of a student's online text is left out beside one of files."""
    texts = {name: name.replace(_ONLINE_TEXT, _FILES) for name in by_student if _ONLINE_TEXT in name}
    for name, files in texts.items():
        others = [each for each in by_student[name] if not each.is_folder and each.parts[-1] != "onlinetext.html"]
        if files in by_student and not others:
            del by_student[name]
    return by_student


def _attempted_s(time: str) -> float:
    """Return the time of a Blackboard attempt, read as UTC; 0 if the date is invalid."""
    with suppress(ValueError):
        return datetime.strptime(time, "%Y-%m-%d-%H-%M-%S").replace(tzinfo=timezone.utc).timestamp()
    return 0.0
