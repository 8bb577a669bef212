"""The submissions of a class: the file that counts per student and exercise, and the files that cannot be used.

No file of a student raises an exception here, and none affects the submissions of another student.
"""

from collections import defaultdict
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gpulab import UserError
from pytest_gpulab.grading.grade import Finding

from .archive import BadArchive, CannotUnpack, Unpacker
from .entries import Entry, name_in_utf_8, of_folder, of_paths, student_name
from .exported_names import by_username, folders_around, in_a_folder, without_texts
from .student_files import LAYOUT, NO_ZIP, OTHER_ARCHIVE, HandedIn, StudentFiles, Unusable

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
    by_student = without_texts(by_username(by_student))
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
        found = _of_class(source, exercises) if source.is_dir() else unpacker.of_class(source, exercises)
        for entry in (in_a_folder(each, exercises) for each in found):
            is_packed = entry.suffix == ".zip" and entry.path is not None
            yield from _unpacked(unpacker, entry) if is_packed else (entry,)
    except OSError as error:
        raise SubmissionsError(f"{source}: cannot be read: {error.strerror}") from None
    except CannotUnpack as error:
        raise SubmissionsError(f"{source}: {error}") from None
    except BadArchive as bad:
        raise SubmissionsError(f"{source}: neither a folder nor a ZIP of one. {bad}") from None


def _of_class(folder: Path, exercises: Names[str]) -> list[Entry]:
    """Return the entries of the folder of a class, without single folders around all of them."""
    found = list(of_folder(folder))
    around = folders_around([entry.parts for entry in found], exercises, least=2)
    for name in around:
        folder = next(child for child in folder.iterdir() if student_name(name_in_utf_8(child.name)) == name)
    return list(of_folder(folder)) if around else found


def _unpacked(unpacker: Unpacker, packed: Entry) -> Iterator[Entry]:
    """Yield the entries of a student's ZIP, with the platform's data about the ZIP."""
    for entry in unpacker.of_student(packed):
        exported = "/".join((packed.exported, *entry.parts[2:])) if packed.exported else ""
        yield replace(entry, exported=exported, attempt=packed.attempt, is_late=packed.is_late)
