"""The roster of a class: students, their ids and their folders.

It is a table with a header, as exported by spreadsheets and learning platforms: UTF-8, with commas, semicolons or tabs
between the cells.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab import UserError
from pytest_gpulab.grading.grade import Student

from .entries import fault_of_name, printable
from .tables import TableMistake, header_of, in_lines, key_of, records, text_of

# Titles of columns, the preferred one first, as learning platforms and GitHub Classroom write them.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": (
        *("id", "student id", "student_id", "sid", "id number", "sis user id", "identifier", "uin", "uid"),
        *("student number", "orgdefinedid", "roster_identifier", "username", "user name", "user id", "login"),
        *("login id", "sis login id", "display id", "netid", "email", "email address"),
    ),
    "name": ("name", "full name", "student name", "student"),
    "first": ("first name", "given name"),
    "last": ("last name", "surname", "family name"),
    "folder": ("folder", "directory", "github_username"),
}
# Titles of Moodle's exports in German, French and Spanish to the English ones.
TRANSLATED: Mapping[str, str] = {
    "id-nummer": "id number", "matrikelnummer": "student id", "anmeldename": "username", "nutzername": "username",
    "benutzername": "username", "e-mail": "email",
    "e-mail-adresse": "email address", "vollständiger name": "full name", "vorname": "first name",
    "nachname": "last name", "ordner": "folder",
    "numéro d'identification": "id number", "identifiant": "identifier", "nom d'utilisateur": "username",
    "adresse de courriel": "email address", "nom complet": "full name", "prénom": "first name", "nom": "last name",
    "nom de famille": "last name", "dossier": "folder",
    "número de id": "id number", "identificador": "identifier", "nombre de usuario": "username",
    "dirección de correo": "email address", "dirección de correo electrónico": "email address",
    "nombre completo": "full name", "nombre": "first name", "apellido(s)": "last name", "apellidos": "last name",
    "carpeta": "folder",
}  # fmt: skip
PARTICIPANT = ("participant", "teilnehmer/in", "participante")  # before the number, in a column of ids
# Rows that Canvas writes below its header.
_NO_STUDENT = ("points possible", "mögliche punkte", "points possibles", "puntos posibles", "manual posting")
# The first match counts: the student may have chosen the text after it.
_OF_MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_.+")
_OF_CANVAS = re.compile(r".+_canvas_(?P<id>\d+)")  # the name that `exported_names` gives to students of Canvas
_SUBMISSION_ID = "submission id"  # title of a column in Gradescope's table of grades
_OF_GRADESCOPE = re.compile(r"submission_\d+")
_LONG_NUMBER = 5  # digits; shorter numbers in a folder's name are rarely an id
_MADE_AGAIN = re.compile(r"-\d$")  # GitHub Classroom adds it to the name of a repository that exists already
_OF_BRIGHTSPACE = re.compile(
    r"(?P<id>\d+)-\d+ ?- (?P<name>.+?) ?- (?=.*\b\d{4}\b).+"  # the date and time are in the platform's language
)


class RosterError(UserError):
    """A roster that cannot be used; the message has a line per mistake, with its line in the file."""


@dataclass(frozen=True)
class _Row:
    """A row of the roster: student, folder name if given, line in the file, and cells that may be further ids."""

    student: Student
    folder: str
    line: int
    aliases: tuple[str, ...] = ()


class Roster:
    """The students of a class, in the order of the file, and the owners of its folders.

    A folder is matched by the column `folder`, else by the id, else by another column that may hold ids, else by a name
    that only one student has, else by the words of a full name, alone or with an id. Case is ignored. Folder names of
    Moodle, Canvas, Brightspace and `gh classroom` are understood. The latter are ambiguous, since usernames have
    hyphens and may end in `-1`, and so are names of Moodle's groups: see `note_folders`.
    """

    def __init__(self, rows: Iterable[_Row]) -> None:
        found = tuple(rows)
        self._prefixes: Counter[str] = Counter()  # of the class's clones; see `note_folders`
        self._settled: frozenset[Student] = frozenset()
        self._has_groups = True  # whether names of Moodle's groups may precede those of students
        self.students = tuple(row.student for row in found)
        self._owners = _only_owners((name, row.student) for row in found for name in _orders(row.student.name))
        self._owners |= _only_owners((alias, row.student) for row in found for alias in row.aliases)
        self._owners |= {key_of(student.id): student for student in self.students}
        self._owners |= {key_of(row.folder): row.student for row in found if row.folder}
        ids = ((text, row.student) for row in found for text in (row.student.id, *row.aliases))
        self._by_plain_id = _only_owners((_plain_id(text), student) for text, student in ids)
        self._by_word: dict[str, list[tuple[Student, Counter[str]]]] = defaultdict(list)
        self._by_full_name = _only_owners((_sorted(_words(student.name)), student) for student in self.students)
        for row in found:
            self._note_words(row)

    @classmethod
    def read(cls, path: Path) -> Roster:
        """Read a roster, or raise RosterError if it is no such table, or if one of its lines is wrong."""
        try:
            rows, mistakes = _rows(text_of(path))
        except TableMistake as mistake:
            rows, mistakes = [], [str(mistake)]
        if mistakes:
            raise RosterError(in_lines(path, mistakes))
        return cls(rows)

    def note_folders(self, folders: Iterable[str]) -> None:
        """Read clones of `gh classroom` by the names of all folders: without them, `hw-1-bob` could be of `1-bob`.

        The assignment is a beginning that several folders share. A repository `hw-ada-1` is the second one of `ada` if
        `ada-1` is not on the roster, and `ada` has no other folder. In an assignment for groups, Moodle writes the
        group's name before every student's: `Team Red-Ada Lovelace_4711_assignsubmission_file`.
        """
        folders = tuple(folders)
        self._has_groups = not any(_OF_MOODLE.fullmatch(folder) and self._listed(folder) for folder in folders)
        clones = [folder for folder in folders if self._listed(folder) is None]
        self._prefixes = Counter(prefix for folder in clones for prefix in _prefixes(folder))
        others = (folder for folder in folders if folder not in clones or not self._is_made_again(folder))
        self._settled = frozenset(student for folder in others if (student := self.student(folder)) is not None)

    def student(self, folder: str) -> Student | None:
        """Return the student of a folder; None if it matches no one on the roster."""
        named = self._listed(folder) or self._named(self._usernames(folder)) or self._described_by(folder)
        return None if named in self._settled and self._is_made_again(folder) else named

    def _listed(self, folder: str) -> Student | None:
        """Return the student whom a folder's whole name lists, if need be by an id in another spelling."""
        plain_ids = map(_plain_id, _names(folder))
        return self._named(_names(folder)) or next(filter(None, map(self._by_plain_id.get, plain_ids)), None)

    def _named(self, texts: Iterable[str]) -> Student | None:
        keys = map(key_of, texts)
        return next((self._owners[key] for key in keys if key in self._owners), None)

    def _note_words(self, row: _Row) -> None:
        name = _words(row.student.name)
        for text in (row.student.id, *row.aliases) if name else ():
            own = _words(text)
            if any(not word.isdigit() or len(word) >= _LONG_NUMBER for word in own):
                self._by_word[max(own, key=len)].append((row.student, name + own))

    def _described_by(self, folder: str) -> Student | None:
        """Return the only student with this full name, or with it and an id among the words of the folder."""
        if any(platform.fullmatch(folder) for platform in (_OF_MOODLE, _OF_CANVAS, _OF_BRIGHTSPACE)):
            return None  # their numbers are not ids of the roster
        words = _words(folder)
        found = {student for word in words for student, own in self._by_word.get(word, ()) if own <= words}
        return found.pop() if len(found) == 1 else self._by_full_name.get(_sorted(words))

    def _usernames(self, folder: str) -> Iterator[str]:
        """Yield what may be the student in assignment-username or group-name, the longest first."""
        prefixes = _prefixes(folder)
        shared = [prefix for prefix in prefixes if self._prefixes[prefix] > 1]
        for prefix in shared or prefixes:
            username = folder[len(prefix) :]
            yield from (username, _MADE_AGAIN.sub("", username))
            if self._has_groups and (moodle := _OF_MOODLE.fullmatch(username)):
                yield moodle["name"]

    def _is_made_again(self, folder: str) -> bool:
        """Return True for a clone that matches a student only without the number at its end."""
        name = next((name for name in self._usernames(folder) if key_of(name) in self._owners), "")
        return self._listed(folder) is None and bool(name) and not folder.endswith(name)

    def absent(self, folders: Iterable[str]) -> tuple[Student, ...]:
        """Return the students without any of these folders."""
        present = {self.student(folder) for folder in folders}
        return tuple(student for student in self.students if student not in present)

    def strangers(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return the folders without a student on the roster."""
        return tuple(folder for folder in folders if self.student(folder) is None)

    @staticmethod
    def described(stranger: str) -> str:
        """Return the problem of a folder without a student on the roster."""
        told = f"{stranger}: not on the roster"
        if not _OF_GRADESCOPE.fullmatch(stranger):
            return told
        return f"{told}; export Gradescope's table of grades as the roster, or add a column `folder`"

    def shared(self, folders: Iterable[str]) -> dict[Student, tuple[str, ...]]:
        """Return the students with more than one of these folders, and the folders."""
        by_student: dict[Student, tuple[str, ...]] = defaultdict(tuple)
        for folder in folders:
            student = self.student(folder)
            if student is not None:
                by_student[student] += (folder,)
        return {student: own for student, own in by_student.items() if len(own) > 1}


def _orders(name: str) -> tuple[str, ...]:
    """Return a name, and its forms in the other order: `Ada Lovelace`, `Lovelace, Ada` and `Lovelace Ada`."""
    if "," in name:
        last, _, first = name.partition(",")
        return name, f"{first.strip()} {last.strip()}"
    first, _, last = name.rpartition(" ")
    return (name, f"{last}, {first}", f"{last} {first}") if first else (name,)


def _words(text: str) -> Counter[str]:
    """Return the words of a text without accents, as platforms write them: `Müller` and `Mueller` are the same."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", key_of(text)) if not unicodedata.combining(sign))
    return Counter(re.findall(r"[^\W_]+", re.sub("([aou])e", r"\1", plain)))


def _sorted(words: Counter[str]) -> str:
    return " ".join(sorted(words.elements()))


def _plain_id(text: str) -> str:
    """Return an id without the marks of spreadsheets and Brightspace: `="0017"`, `'17`, `17.0` and `#17` are 17."""
    bare = unicodedata.normalize("NFKC", text).strip("='\"#\u200b ")
    return key_of(re.sub(r"0*(\d+)(?:\.0+)?", r"\1", bare) if re.fullmatch(r"\d+(?:\.0+)?", bare) else bare)


def _only_owners(named: Iterable[tuple[str, Student]]) -> dict[str, Student]:
    """Return the students by the names that only one of them has."""
    owners: dict[str, set[Student]] = defaultdict(set)
    for name, student in named:
        owners[key_of(name)].add(student)
    return {name: next(iter(students)) for name, students in owners.items() if name and len(students) == 1}


def _names(folder: str) -> Iterator[str]:
    """Yield the texts by which the roster may list a folder, the most reliable first."""
    yield folder
    if moodle := _OF_MOODLE.fullmatch(folder):
        yield from (f"{word}{gap}{moodle['number']}" for word in PARTICIPANT for gap in (" ", ""))
        yield moodle["name"]
    if canvas := _OF_CANVAS.fullmatch(folder):
        yield canvas["id"]
    if brightspace := _OF_BRIGHTSPACE.fullmatch(folder):
        yield from (brightspace["id"], brightspace["name"])


def _prefixes(folder: str) -> list[str]:
    """Return the beginnings of a folder's name that may be an assignment, the shortest first."""
    return [folder[: hyphen.end()] for hyphen in re.finditer("-", folder)]


def _rows(text: str) -> tuple[list[_Row], list[str]]:
    """Return the students, and the mistakes in other lines.

    Raises TableMistake if the header is wrong, or the table ends within a cell.
    """
    known = {title for titles in COLUMNS.values() for title in titles}
    (header_line, header), separator = header_of(text, lambda title: _title(title) in known)
    listed = [
        (line, cells)
        for line, cells in records(text, separator)
        if line > header_line and not any(key_of(cell) in _NO_STUDENT for cell in cells)
    ]
    columns = _columns(header_line, header)
    ids = _id_columns(header)
    columns["id"] = _filled(ids, [cells for _, cells in listed])
    aliases = [at for at in ids if at != columns["id"]]
    aliases += _folders_of_gradescope(header, [cells for _, cells in listed])
    rows: list[_Row] = []
    mistakes: list[str] = []
    lines: dict[tuple[str, str], int] = {}
    for line, cells in listed:
        try:
            rows.append(_row(line, cells, columns, aliases, len(header)))
            _note_line(rows[-1], lines)
        except TableMistake as mistake:
            mistakes.append(f"line {line}: {mistake}")
    if not rows and not mistakes:
        raise TableMistake("there is no student below the header")
    return rows, mistakes


def _title(cell: str) -> str:
    """Return a column's title as `COLUMNS` has it."""
    title = key_of(cell).replace("\u2019", "'")
    return TRANSLATED.get(title, title)


def _columns(line: int, header: list[str]) -> dict[str, int]:
    """Return the index of each kind of column."""
    titles = [_title(cell) for cell in header]
    found = {}
    for kind, known in COLUMNS.items():
        title = next((title for title in known if title in titles), None)
        if title is not None and titles.count(title) > 1:
            raise TableMistake(f"line {line}: two columns are called {title}")
        if title is not None:
            found[kind] = titles.index(title)
    if "id" not in found:
        there = ", ".join(map(printable, header))
        raise TableMistake(f"line {line}: no column holds ids: one must be called id ({', '.join(COLUMNS['id'][1:])}); "
                       f"there are: {there or 'none'}")  # fmt: skip
    return found


def _id_columns(header: list[str]) -> list[int]:
    """Return the indices of the columns that may hold ids, the preferred first."""
    titles = [_title(cell) for cell in header]
    return [titles.index(title) for title in COLUMNS["id"] if title in titles]


def _folders_of_gradescope(header: list[str], listed: list[list[str]]) -> list[int]:
    """Complete the folders' names in the table of grades, which lists their numbers; return its index in a list."""
    titles = [key_of(cell) for cell in header]
    found = [titles.index(_SUBMISSION_ID)] if _SUBMISSION_ID in titles else []
    for at in found:
        for cells in listed:
            cells[at : at + 1] = [f"submission_{number}" if number else "" for number in cells[at : at + 1]]
    return found


def _filled(columns: Sequence[int], records: Sequence[Sequence[str]]) -> int:
    """Return the first column without empty cells, else the one with fewest: platforms leave some columns empty."""
    counts = {at: sum(at < len(cells) and bool(cells[at]) for cells in records) for at in columns}
    return max(columns, key=lambda at: counts[at])


def _row(line: int, cells: list[str], columns: Mapping[str, int], aliases: Sequence[int], width: int) -> _Row:
    if any(cells[width:]):
        raise TableMistake(f"{len(cells)} cells for {width} columns; quote cells that contain a separator")
    by_kind = {kind: cells[at] for kind, at in columns.items() if at < len(cells)}
    name = by_kind.get("name") or f"{by_kind.get('first', '')} {by_kind.get('last', '')}".strip()
    others = [cells[at] for at in aliases if at < len(cells)]
    own = next(filter(None, (by_kind.get("id", ""), *others)), "")  # platforms leave single cells empty
    student, folder = Student(own, name), by_kind.get("folder", "")
    if not student.id:
        raise TableMistake("the id is missing")
    for text in (student.id, student.name, folder):
        if fault_of_name(text) or printable(text) != text:
            raise TableMistake(f"{printable(text[:80])}: too long, or with unprintable characters")
    return _Row(student, folder, line, tuple(others))


def _note_line(row: _Row, lines: dict[tuple[str, str], int]) -> None:
    """Check that no two students have the same id or folder."""
    for kind, text in (("id", row.student.id), ("folder", row.folder)):
        first = lines.setdefault((kind, key_of(text)), row.line)
        if text and first != row.line:
            raise TableMistake(f"the {kind} {text} is already on line {first}")
