"""A class run: the submissions that count, their students, and notes for the reports.

The ids of checks are `student/exercise.cu::check` wherever the folder lies or its archive was unpacked, so that
pytest's own `-k`, `-x` and `--lf` work from run to run. Only graded files of the folder are read.
"""

import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.course.intake.adjustments import read_adjustments
from pytest_gpulab.course.intake.entries import name_for_system, name_in_utf_8
from pytest_gpulab.course.intake.roster import Roster
from pytest_gpulab.course.intake.similarity import given_with, similar_groups
from pytest_gpulab.course.intake.student_files import LATE, NOTHING, HandedIn, Unusable
from pytest_gpulab.course.intake.submissions import Collection, handed_in
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue
from pytest_gpulab.grading.findings import counted
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.isolation.fork_server import temporary_folder
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair
from pytest_gpulab.reports.terminal.class_summary import last_line

from .class_items import ClassFolder
from .items import CheckItem
from .settings import ClassSettings, SettingsError, shown
from .summary import REPORTCHARS


class ClassRun:
    """A run that grades the submissions of a class; one instance per session."""

    def __init__(
        self, config: pytest.Config, course: ClassSettings, catalogue: Catalogue, gradebook: Gradebook
    ) -> None:
        assert course.submissions is not None
        self.config, self.source, self._gradebook = config, course.submissions, gradebook
        self._exercises = catalogue.folder
        self.is_whole = True  # whether all submissions are graded
        self._scratch = temporary_folder()
        try:
            self._roster = None if course.roster is None else Roster.read(course.roster)
            self.collection = _collection(self.source, catalogue, Path(self._scratch.name))
            if self._roster is not None:
                self._roster.note_folders(self.collection.students)
            if course.adjust is not None:
                gradebook.adjustments = read_adjustments(course.adjust, catalogue.names, self._named_student)
        except BaseException:
            self._scratch.cleanup()
            raise
        self._note_problems()
        config.args = [Path(config.rootpath.anchor).as_posix()]  # one folder, which `collector` replaces by the class

    def _named_student(self, name: str) -> str | None:
        """Return the id of the student with a name in the table of adjustments: an id, or the name of a folder."""
        student = None if self._roster is None else self._roster.student(name)
        if student is not None or name in self.collection.students:
            return self.student_id(name)
        return name if name in map(self.student_id, self.collection.students) else None

    def _note_problems(self) -> None:
        book, students = self._gradebook, self.collection.students
        problems = list(self._problems())
        problems += [submission.note for submission in self.collection.submissions if submission.note]
        if self._roster is not None:
            book.roster, book.absent = self._roster.students, self._roster.absent(self._not_empty(students))
            problems += map(self._roster.described, self._roster.strangers(students))
            for student, folders in self._roster.shared(students).items():
                what = f"several folders, {', '.join(folders)}: for each exercise the best of them counts"
                problems.append(f"{student.id}: {what}")
        book.problems = tuple(problems)
        book.handed_in, book.left_out = self._handed_in(), self._left_out()
        book.chosen = frozenset(book.handed_in)  # until more is known

    def _not_empty(self, students: Iterable[str]) -> list[str]:
        """Return the students' folders with any file."""
        empty = {problem.student for problem in self.collection.problems if problem.finding.code == NOTHING}
        return [student for student in students if student not in empty]

    def _handed_in(self) -> dict[str, dict[str, int]]:
        """Return the collected exercises of each student's id, and how many files of each can be graded."""
        found: dict[str, dict[str, int]] = {}
        for each in self.collected:
            exercises = found.setdefault(self.student_id(each.student), {})
            exercises[each.exercise] = exercises.get(each.exercise, 0) + isinstance(each, HandedIn)
        return found

    def _left_out(self) -> dict[str, dict[str, Finding]]:
        """Return the files of each student's id that count for no exercise, with the reasons."""
        found: dict[str, dict[str, Finding]] = {}
        for problem in self.collection.problems:
            if problem.student and not problem.exercise and problem.finding.code not in (LATE, NOTHING):
                found.setdefault(self.student_id(problem.student), {})[problem.label] = problem.finding
        return found

    def _problems(self) -> Iterator[str]:
        is_explained = False
        for problem in self.collection.problems:
            is_misnamed = problem.finding.code == "no-exercise"
            # Once: it names all exercises.
            hint = f" {problem.finding.hint}" if is_misnamed and not is_explained else ""
            is_explained |= is_misnamed
            yield f"{problem.label}: {problem.finding.what}{hint}"

    def student_id(self, folder: str) -> str:
        """Return the student's id for a folder: from the roster, else the folder's name."""
        student = None if self._roster is None else self._roster.student(folder)
        return folder if student is None else student.id

    def collector(self, parent: pytest.Collector, path: Path) -> pytest.Collector:
        """Return the node that replaces the one folder that is collected."""
        folder: ClassFolder = ClassFolder.from_parent(parent, name="class", path=path, nodeid="class", class_run=self)
        return folder

    def select(self, items: list[pytest.Item]) -> None:
        """Keep the items named on the command line, by ids of students, of submissions or of checks.

        Raises pytest.UsageError if an id matches nothing.
        """
        names = map(name_in_utf_8, self.config.getoption("file_or_dir"))
        given = [name_for_system(unicodedata.normalize("NFC", name.rstrip("/"))) for name in names]
        for name in given:
            if not any(_is_in(item.nodeid, name) for item in items):
                raise pytest.UsageError(self._why_not(name))
        left_out = [item for item in items if given and not any(_is_in(item.nodeid, name) for name in given)]
        if left_out:
            self.config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in set(left_out)]

    def _why_not(self, name: str) -> str:
        student = name.partition("/")[0]
        if student in self.collection.students and student not in self._with_submissions:
            return f"nothing that {student} handed in is for an exercise"
        return f"{name} was not handed in: name a student, STUDENT/EXERCISE.cu or a check's id"

    @property
    def _with_submissions(self) -> set[str]:
        """The students with a collected submission."""
        return {each.student for each in self.collected}

    @property
    def collected(self) -> list[HandedIn | Unusable]:
        """The submissions for exercises, and files in their place that cannot be graded."""
        return [*self.collection.submissions, *(each for each in self.collection.problems if each.exercise)]

    def note_chosen(self, items: Sequence[pytest.Item]) -> None:
        """Record the graded students."""
        self._gradebook.chosen = frozenset(item.parent.student for item in items if isinstance(item, CheckItem))

    def quieten(self) -> None:
        """Suppress pytest's sign per check and its page per failure, unless the command line requests them."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self.is_quiet:
            option: Any = self.config.option
            option.tbstyle = "no" if option.tbstyle == "auto" else option.tbstyle
            reporter.showfspath = False
            if not option.collectonly:
                reporter.summary_stats = partial(self._print_last_lines, reporter, time.monotonic())
            reporter.reportchars = "" if option.reportchars == REPORTCHARS else reporter.reportchars

    def _print_last_lines(self, reporter: pytest.TerminalReporter, started_s: float) -> None:
        """Print the numbers of checks without colour, and last the numbers of students, in place of pytest's line."""
        # pytest-sugar files setup and teardown among the passed tests as well.
        reporter.stats["passed"] = [each for each in reporter.stats.get("passed", ()) if each.when == "call"]
        counts = ", ".join(text for text, _ in reporter.build_summary_stats_line()[0])
        reporter.write_line(f"checks: {counts} in {time.monotonic() - started_s:.2f}s")
        reporter.write_line(last_line(self._gradebook), bold=True)

    @property
    def is_quiet(self) -> bool:
        """True if the terminal shows tables and no checks."""
        return bool(self.config.get_verbosity() <= 0)

    def header(self) -> str:
        """Return the numbers of graded submissions and students, as text."""
        handed_in = counted(len(self.collection.submissions), "submission")
        return f"{handed_in} of {counted(len(self.collection.students), 'student')} in {shown(self.source)}"

    def finish(self) -> None:
        """Record students without a gradable file, and find near-identical sources, before reports are written."""
        if self.is_whole:
            self._note_students_without_grades()
        if self.config.getoption("gpulab_report") and not self.config.getoption("collectonly"):
            self._gradebook.duplicates = tuple(self._duplicates())

    def _note_students_without_grades(self) -> None:
        """Add a row with the reason for each student without a gradable file."""
        with_submissions = set(map(self.student_id, self._with_submissions))  # a student may have several folders
        for problem in self.collection.problems:
            if not problem.student or problem.finding.code == NOTHING:
                continue
            student = self.student_id(problem.student)
            if student not in with_submissions:
                self._gradebook.ungraded[problem.label] = problem.finding
                self._gradebook.owners[problem.label] = student

    def _duplicates(self) -> Iterator[SimilarPair]:
        owners = {each.label: self.student_id(each.student) for each in self.collection.submissions}
        by_exercise: dict[str, dict[str, bytes]] = {}
        for submission in self.collection.submissions:
            with suppress(OSError):  # an unreadable file is no copy
                by_exercise.setdefault(submission.exercise, {})[submission.label] = submission.read()
        for exercise, sources in by_exercise.items():
            for group in similar_groups(sources, given_with(self._exercises / exercise), owners):
                alike = {name for match in group.matches for name in match.submissions}
                texts = {name: sources[name].decode("utf-8", "replace") for name in alike}
                self._gradebook.sources = {**self._gradebook.sources, **texts}
                yield from (
                    SimilarPair(exercise, match.submissions, match.similarity, match.lines) for match in group.matches
                )

    def clean_up(self) -> None:
        """Remove the unpacked files of an archive."""
        self._scratch.cleanup()


def _collection(source: Path, catalogue: Catalogue, scratch: Path) -> Collection:
    if not catalogue.names:
        raise SettingsError(f"{catalogue.folder} has no exercise: a folder with an exercise.py")
    found = handed_in(source, catalogue.names, scratch)
    try:
        for name in sorted({submission.exercise for submission in found.submissions}):
            catalogue.load(name)  # before hours of grading that would end with an error
    except BrokenExercise as error:
        raise SettingsError(f"the exercise {error.name} cannot be loaded:\n{error.traceback_text.rstrip()}") from None
    return found


def _is_in(nodeid: str, name: str) -> bool:
    return nodeid == name or nodeid.startswith((f"{name}/", f"{name}::"))
