"""The files of one student: the file that counts per exercise, and the files that cannot be used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.catalogue import stems_of
from pytest_gpulab.grading.compilation.includes import MAX_SOURCE_BYTES
from pytest_gpulab.grading.findings import counted, listed
from pytest_gpulab.grading.grade import Finding

from .entries import Entry, opened_for_reading, printable, suffix_of

MAX_NAMED = 10
MAX_NAMED_AT_ONCE = 3  # per sentence
_LAST_S = 253_402_300_799.0  # the end of the year 9999
OTHER_ARCHIVE = re.compile(
    r"(?P<student>.+?)(?:\.tar)?\.(?:7z|rar|tar|tgz|txz|tbz2?|tzst|gz|bz2|xz|zst|z|lz|lzh|lzma|zipx|cab)", re.IGNORECASE
)
_MACHINES = ("unreadable",)

LATE = "late"
"""Code of the finding for late submissions."""
NOTHING = "nothing-handed-in"
"""Code of the finding for an empty folder."""
LAYOUT = "the layout is <student>/<exercise>.cu or <student>/<exercise>/*.cu"
NO_ZIP = Finding("bad-archive", "It is an archive, but not a ZIP.", hint="Pack the files again, as a ZIP.")


@dataclass(frozen=True)
class HandedIn:
    """The file that counts for a student and an exercise."""

    student: str  # name of the student's folder
    exercise: str
    path: Path  # the file with its contents during this run
    label: str  # its name in reports, printable and unique
    note: str = ""  # the reason why it was chosen among several files; empty for a single file

    def read(self) -> bytes:
        """Return its contents, of at most `MAX_SOURCE_BYTES`; raise OSError if it has changed since the search."""
        with opened_for_reading(self.path) as file:
            contents = file.read(MAX_SOURCE_BYTES + 1)
        if len(contents) > MAX_SOURCE_BYTES:
            raise OSError(0, "it has grown since the folder was searched", str(self.path))
        return contents


@dataclass(frozen=True)
class Unusable:
    """A file or folder of a class that is not graded, with the reason."""

    student: str  # name of the student's folder; empty if unknown
    exercise: str  # the exercise that is without a submission because of it; empty if there is none
    label: str  # its path, printable
    finding: Finding

    @property
    def verdict(self) -> Literal["failed", "not gradable"]:
        """The verdict of the submission: a fault of the machine costs no points."""
        return "not gradable" if self.finding.code in _MACHINES else "failed"


@dataclass(frozen=True)
class StudentFiles:
    """One student's files that can or cannot be graded, by exercise; unreadable entries; files of no exercise."""

    name: str
    exercises: Names[str]
    candidates: dict[str, list[Entry]]
    faulty: dict[str, list[Entry]]
    faults: list[Entry]
    others: list[Entry]

    @classmethod
    def of(cls, name: str, found: Iterable[Entry], by_name: Mapping[str, str]) -> StudentFiles:
        """Sort the files of a student; entries that a ZIP repeats count once."""
        student = cls(name, by_name.values(), defaultdict(list), defaultdict(list), [], [])
        for entry in dict.fromkeys(found):
            exercise = _exercise_of(entry.parts, by_name) if entry.suffix == ".cu" else None
            if exercise is not None and not entry.is_folder:
                (student.candidates if entry.fault is None else student.faulty)[exercise].append(entry)
            elif entry.fault is not None:
                student.faults.append(entry)
            elif not entry.is_folder:
                student.others.append(entry)
        if any(entry.parts[-1] == "exercise.py" for entry in student.others):  # a copy of the course
            student.others[:] = (entry for entry in student.others if student._may_be_own(entry))
        return student

    def _may_be_own(self, entry: Entry) -> bool:
        """Return True for a source in a copy of the course that did not come with it."""
        return entry.parts[-1] != NAIVE and (entry.suffix == ".cu" or Path(entry.parts[-1]).stem in self.exercises)

    def submissions(self) -> Iterator[HandedIn]:
        """Yield the file that counts per exercise."""
        for exercise in sorted(self.candidates):
            newest, *older = self._newest_first(exercise)
            assert newest.path is not None  # there is no fault
            yield HandedIn(self.name, exercise, newest.path, newest.label, _choice(newest, older))

    def _newest_first(self, exercise: str) -> list[Entry]:
        files = self.candidates[exercise]
        return sorted(files, key=lambda entry: (entry.modified_s, entry.attempt, entry.label), reverse=True)

    def problems(self) -> Iterator[Unusable]:
        """Yield the files that do not count, with the reasons."""
        for exercise, files in sorted(self.faulty.items()):
            alone = "" if exercise in self.candidates else exercise
            for file in files:
                assert file.fault is not None
                yield Unusable(self.name, alone, file.label, file.fault)
                alone = ""
        yield from self._unreadable()
        if not (self.candidates or self.faulty or self.faults):
            yield Unusable(self.name, "", printable(self.name), self._nothing())
        elif self.others:
            yield Unusable(self.name, "", printable(self.name), self._left_out())
        yield from self._late()

    def _unreadable(self) -> Iterator[Unusable]:
        by_fault: dict[Finding, list[Entry]] = defaultdict(list)
        for entry in self.faults:
            assert entry.fault is not None
            by_fault[entry.fault].append(entry)
        for fault, (first, *more) in by_fault.items():
            others = f"There {'is' if len(more) == 1 else 'are'} {len(more)} more."
            merged = replace(fault, what=f"{fault.what} {others}", evidence=_named([first, *more]))
            yield Unusable(self.name, "", first.label, merged if more else fault)

    def _late(self) -> Iterator[Unusable]:
        counting = (self._newest_first(exercise)[0] for exercise in sorted(self.candidates))
        late = [printable(entry.parts[-1]) for entry in counting if entry.is_late]
        if late:
            were = "was" if len(late) == 1 else "were"
            what = f"{listed(late, 'and')} {were} handed in late, according to the platform."
            yield Unusable(self.name, "", printable(self.name), Finding(LATE, what))

    def _nothing(self) -> Finding:
        if any(entry.suffix == ".cu" for entry in self.others):
            return self._left_out()
        packed = next((entry.parts[-1] for entry in self.others if OTHER_ARCHIVE.fullmatch(entry.parts[-1])), None)
        if packed is not None:
            return replace(NO_ZIP, what=NO_ZIP.what.replace("It", printable(packed), 1))
        nested = next((entry for entry in self.others if entry.suffix == ".zip"), None)
        if nested is not None:
            what = f"{printable(nested.parts[-1])} is a ZIP in a ZIP, and only the outer one is unpacked."
            return Finding(NO_ZIP.code, what, hint="Pack the files again, as one ZIP.")
        others, advice = sorted(self.others, key=self._rank_as_source), self._advice()
        names = f", but {_first_named(others)}" if others else ""
        what = f"There is no .cu file{names}{advice}."
        code = "wrong-ending" if advice else "no-source" if others else NOTHING
        return Finding(code, what, evidence=_named(others), hint=self._naming)

    def _left_out(self) -> Finding:
        others = sorted(self.others, key=self._rank_as_source)  # sources first: notes are rarely a mistake
        what = f"{counted(len(others), 'file')} for no exercise, left out: {_first_named(others)}{self._advice()}."
        return Finding("no-exercise", what, evidence=_named(others), hint=self._naming)

    @property
    def _naming(self) -> str:
        return f"Name a file after its exercise: {listed([f'{name}.cu' for name in sorted(self.exercises)], 'or')}."

    def _advice(self) -> str:
        has_other_ending = any(entry.suffix != ".cu" and self._is_meant_as_source(entry) for entry in self.others)
        return ": submissions end in .cu" if has_other_ending else ""

    def _rank_as_source(self, entry: Entry) -> tuple[bool, bool, bool]:
        return entry.suffix != ".cu", not self._is_meant_as_source(entry), entry.suffix not in _OF_C

    def _is_meant_as_source(self, entry: Entry) -> bool:
        name = entry.parts[-1].casefold()
        return ".cu" in name or Path(name).stem in map(str.casefold, self.exercises)


_OF_C = (".c", ".cc", ".cpp", ".cxx", ".cuh", ".h", ".hpp")


def _exercise_of(parts: Sequence[str], by_name: Mapping[str, str]) -> str | None:
    """Return the exercise of a file by its own name, else by the name of its folder directly below the student's.

    Files that come with an exercise, such as in a copy of the course, lie deeper and do not count.
    """
    inside = [part for part in parts[1:] if suffix_of(part) != ".zip"]
    if not inside:
        return None
    by_folder = by_name.get(inside[0].casefold()) if len(inside) == 2 else None
    return next((by_name[stem] for stem in stems_of(inside[-1]) if stem in by_name), by_folder)


def _choice(newest: Entry, older: Sequence[Entry]) -> str:
    if not older:
        return ""
    why = "the newest"
    if newest.modified_s == older[0].modified_s:
        why = f"the last {'attempt' if newest.attempt > older[0].attempt else 'by name'} of the newest"
    others = [_with_time(entry) for entry in older[:MAX_NAMED]]
    others += [f"{len(older) - MAX_NAMED} more"] if len(older) > MAX_NAMED else []
    return f"{_with_time(newest)} counts, {why} of {len(older) + 1} files; not {', '.join(others)}"


def _with_time(entry: Entry) -> str:
    modified = datetime.fromtimestamp(min(max(entry.modified_s, 0.0), _LAST_S), timezone.utc)
    return f"{entry.exported_label} ({modified:%Y-%m-%d %H:%M:%S})"


def _first_named(entries: Sequence[Entry]) -> str:
    """Return the first names and the number of further ones, for a sentence."""
    names = ", ".join(entry.label_below for entry in entries[:MAX_NAMED_AT_ONCE])
    more = len(entries) - MAX_NAMED_AT_ONCE
    return f"{names} and {more} more" if more > 0 else names


def _named(entries: Sequence[Entry]) -> tuple[str, ...]:
    more = len(entries) - MAX_NAMED
    return tuple(entry.label for entry in entries[:MAX_NAMED]) + ((f"and {more} more",) if more > 0 else ())
