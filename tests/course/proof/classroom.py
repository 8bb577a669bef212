"""A class that does not exist: what hundreds of students might hand in, the same for the same seed.

python tests/course/proof/classroom.py FOLDER --students 500 --seed 1
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from disguise import disguised
from hostile import HARMS, SECRET

ROOT = Path(__file__).parents[3]
EXERCISES = (
    *("reduction", "scan", "divergence", "constant_memory"),
    *("matrix_sum", "transpose", "histogram", "stencil"),
)
SHARES = {
    "right": 0.40,
    "slow": 0.10,
    "wrong": 0.22,
    "hostile": 0.12,
    "duplicate": 0.05,
    "disguised": 0.04,
    "non-UTF-8": 0.03,
    "empty": 0.02,
    "huge": 0.02,
}
SLOW = {
    "reduction": ("06_shared_modulo", "01_global_neighbored"),
    "scan": ("01_hillis_steele",),
    "divergence": ("01_two_way_by_warp",),
    "constant_memory": ("02_scattered_index",),
    "matrix_sum": ("02_one_warp_per_block",),
    "transpose": ("01_shared_tile",),
    "histogram": ("01_private_bins",),
    "stencil": ("01_shared_tile",),
}
PLANTED = f"""import pathlib  # {SECRET}
pathlib.Path(__file__).with_name("was_imported").touch()
"""


@dataclass(frozen=True)
class Submission:
    """A submission of one student for one exercise.

    Attributes:
        kind: one of `SHARES`.
        based_on: the file of the repository whose verdicts this one must get; None if nobody can say beforehand.
        told: which harm or fault it is, or whose duplicate.
    """

    student: str
    exercise: str
    kind: str
    source: bytes
    based_on: Path | None = None
    told: str = ""

    @property
    def label(self) -> str:
        """Where it is in the class's folder."""
        return f"{self.student}/{self.exercise}.cu"


class Classroom:
    """Draws submissions; each differs from all others by a comment with the student's name, but for duplicates."""

    def __init__(self, seed: int, exercises: Sequence[str] = EXERCISES, harms: Iterable[str] = HARMS) -> None:
        self._rng = random.Random(seed)
        self._exercises = exercises
        self._harms, self._next_harms = sorted(harms), list[str]()
        self._done: list[Submission] = []

    def students(self, count: int) -> list[Submission]:
        """Return that many submissions, one of each student: each kind's share, but at least one."""
        kinds = list(SHARES)[:count]
        kinds += [kind for kind, share in SHARES.items() for _ in range(round(share * count) - 1)][: count - len(kinds)]
        kinds = sorted(kinds + ["right"] * (count - len(kinds)), key=list(SHARES).index)
        self._rng.shuffle(kinds)
        kinds.sort(key=lambda kind: kind == "duplicate")  # when there is something to be copied
        names = [f"student{number:03d}" for number in range(count)]
        self._rng.shuffle(names)
        self._done = []
        for name, kind in zip(names, kinds, strict=True):
            self._done.append(self._submission(name, kind))
        return sorted(self._done, key=lambda submission: submission.student)

    def _submission(self, student: str, kind: str) -> Submission:
        if kind == "duplicate":
            copied = self._rng.choice([other for other in self._done if other.kind in ("right", "slow", "wrong")])
            return Submission(student, copied.exercise, kind, copied.source, copied.based_on, copied.student)
        exercise = self._rng.choice(self._exercises)
        base = self._rng.choice(list(_bases(exercise, kind)))
        signed = base.read_text() + f"\n// {student} {SECRET}\n"
        if kind in ("right", "slow", "wrong"):
            return Submission(student, exercise, kind, signed.encode(), base)
        if kind == "disguised":
            source = disguised(base.read_text(), self._rng) + f"\n// {student}\n"
            return Submission(student, exercise, kind, source.encode(), base)
        if kind == "hostile":
            told = self._next_harm()
            return Submission(student, exercise, kind, HARMS[told](signed).encode(), None, told)
        told, source, is_right = self._rng.choice(_oddities(kind, signed, exercise))
        return Submission(student, exercise, kind, source, base if is_right else None, told)

    def _next_harm(self) -> str:
        """Take each in turn, in any order, before the first comes again."""
        if not self._next_harms:
            self._next_harms = self._rng.sample(self._harms, len(self._harms))
        return self._next_harms.pop()


def _bases(exercise: str, kind: str) -> Iterator[Path]:
    if kind == "wrong":
        yield from sorted((ROOT / "tests/wrong" / exercise).glob("*.cu"))
        return
    for path in (
        *sorted((ROOT / "solutions" / exercise).glob("*.cu")),
        *(ROOT / "tests/honest" / exercise).glob("*.cu"),
    ):
        if (path.stem in SLOW[exercise]) == (kind == "slow"):
            yield path


def _oddities(kind: str, signed: str, exercise: str) -> list[tuple[str, bytes, bool]]:
    """Return what can be odd about a file: what it is, the file, and whether it is right all the same."""
    table = "constexpr int table[] = {" + "1, " * 150_000 + "1};\n"
    if kind == "empty":
        skeleton = (ROOT / "exercises" / exercise / f"{exercise}.cu").read_bytes()
        return [
            ("nothing", b"", False),
            ("blanks", b" \n\t\n" * 100, False),
            ("a comment", b"// I was ill.\n", False),
            ("the skeleton", skeleton, False),
        ]
    if kind == "huge":
        return [
            ("a long comment", signed.encode() + b"// more\n" * 100_000, True),
            ("a long table", signed.encode() + table.encode(), True),
            ("more than is read", signed.encode() + b"// more\n" * 300_000, False),
        ]
    return [
        ("Latin-1", signed.encode() + "// größer\n".encode("latin-1"), False),
        ("UTF-16", signed.encode("utf-16"), False),
        ("a byte order mark", b"\xef\xbb\xbf" + signed.encode(), False),
        ("zero bytes", signed.encode().replace(b"\n", b"\n\0", 3), False),
        ("a program", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40 + signed.encode(), False),
    ]


def write(submissions: Sequence[Submission], folder: Path) -> None:
    """Write the files; hostile students plant Python files, settings of pytest and links as well."""
    for submission in submissions:
        path = folder / submission.label
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(submission.source)
        if submission.kind == "hostile":
            for name in ("conftest.py", "test_grades.py", "sitecustomize.py", "gpulab.py"):
                (path.parent / name).write_text(PLANTED)
            (path.parent / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
            (path.parent / "secret.cuh").write_text(f"#error {SECRET}\n")
            (path.parent / "neighbour").symlink_to("..", target_is_directory=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    submissions = Classroom(options.seed).students(options.students)
    write(submissions, options.folder)
    for kind in SHARES:
        print(f"{sum(submission.kind == kind for submission in submissions):4d} {kind}")


if __name__ == "__main__":
    main()
