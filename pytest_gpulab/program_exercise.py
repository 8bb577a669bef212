"""Exercises that ask for a whole program, with main(): a `ProgramExercise`, and the `Program` runs of its checks.

An exercise folder's `exercise.py` binds one to the name `exercise`. The student's program runs natively, in a sandbox;
its kernels run on the simulated GPU. What a program must print is computed outside of the sandbox.
"""

from __future__ import annotations  # as texts, which `exercise_rules` compares

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .exercise import ExerciseError
from .exercise_rules import entry_problems, field_problems, point_problems, repeated_names

SAFE_KINDS = ("memory", "barrier", "race", "uninitialised", "leak", "errors")
MAX_TIMEOUT_S, MAX_MEMORY_BYTES = 300.0, 4 << 30


@dataclass(frozen=True)
class Output:
    """The output of a run, for `Program.expected`.

    Attributes:
        stdout: standard output as text.
        files: contents of the files of `Program.writes`, by name; empty for one that was not written.
    """

    stdout: str
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Launches:
    """A bound on the number of launches of a run.

    Attributes:
        kernel: the unmangled name; empty for all kernels together.
        at_least, at_most: the bounds; None for no upper bound.
        hint: the hint of the finding; never the solution.
    """

    kernel: str = ""
    at_least: int = 1
    at_most: int | None = None
    hint: str = ""


@dataclass(frozen=True)
class Program:
    """One run of a student's program, and the output that it must have.

    Attributes:
        expected: the standard output, or a function from the output to a sentence on what is wrong with it, empty for
            none. Spaces at the ends of lines and empty lines at the end do not count.
        args: arguments on the command line.
        stdin: standard input.
        files: files in the working folder, by name; the program can only read them.
        writes: names of files that the program must write.
        exit_code: the required exit code.
        launches: bounds on launches.
        defines: macros for the kernels of `ProgramExercise.given`, which the student's own build does not have.
        hint: the hint of a finding on wrong output; never the solution.
        timeout_s: wall-clock limit of the run, kernels included.
        memory_bytes, device_bytes: limits of the host's address space, and of device memory.
        output_bytes, disk_bytes: limits of standard output, and of all files.

    Raises:
        ExerciseError: a file's name is no plain name, or a limit is out of range.
    """

    expected: str | Callable[[Output], str]
    args: tuple[str, ...] = ()
    stdin: str | bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    writes: tuple[str, ...] = ()
    exit_code: int = 0
    launches: tuple[Launches, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    timeout_s: float = 20.0
    memory_bytes: int = 1 << 30
    device_bytes: int = 256 << 20
    output_bytes: int = 1 << 20
    disk_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if found := list(field_problems(self, "Program")) or list(_program_problems(self)):
            raise ExerciseError("\n".join(found))

    @property
    def stdin_bytes(self) -> bytes:
        """Standard input as bytes."""
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin


MakeProgram = Callable[[np.random.Generator], Program]


@dataclass(frozen=True)
class ProgramCase:
    """One `correct[...]` check: a run of the program.

    Attributes:
        name: the name in brackets, such as `n=1023`; unique in the exercise.
        program: a function from a generator of random numbers to the run. Random input cannot be recognised.
        points: points if output, exit code and launches are correct.
        hidden: whether students' reports show only the kind of mistake and a hint.
    """

    name: str
    program: MakeProgram
    points: float
    hidden: bool = False


@dataclass(frozen=True)
class ProgramSafe:
    """One `safe[...]` check: a kind of mistake that must not occur in any case.

    Attributes:
        kind: as of `SafeCheck`, or `leak` (device memory that is not freed) or `errors` (calls that return an error).
        points: points if no such mistake occurs.
    """

    kind: Literal["memory", "barrier", "race", "uninitialised", "leak", "errors"]
    points: float


@dataclass(frozen=True)
class ProgramUse:
    """One `uses[...]` check: a further run that shows how the output comes about.

    Attributes:
        name: the name in brackets; unique in the exercise.
        program: as of `ProgramCase`. With other `defines`, the given kernels compute something else, which only a
            program that takes its output from them can print.
        points: points if output, exit code and launches are as required.
        title: the beginning of the finding, such as `The output does not come from the kernel`.
        required: whether missing it fails; otherwise it is a bonus.
        extra: whether the points come on top of the 100.
    """

    name: str
    program: MakeProgram
    points: float
    title: str = "Concept not used as required"
    required: bool = True
    extra: bool = False


@dataclass(frozen=True)
class ProgramExercise:
    """An exercise that asks for a whole program.

    Attributes:
        title: one line for reports.
        cases, safe, uses: the checks. Points total 100; correctness (cases and safe) is at least half.
        headers: file names in the exercise's folder that submissions may include, such as `reduce.cuh`.
        given: those of `headers` with the given kernels. These run as they are in the exercise's folder, with the
            `defines` of the run, even if a submission defines other kernels of the same names.
        compile_points: points for compiling (usually 0).
        version: to be raised when grades are no longer comparable.

    Raises:
        ExerciseError: the data break a rule; the message has a line for each.
    """

    title: str
    cases: tuple[ProgramCase, ...]
    safe: tuple[ProgramSafe, ...] = ()
    uses: tuple[ProgramUse, ...] = ()
    headers: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    compile_points: float = 0
    version: str = "1"

    def __post_init__(self) -> None:
        stages = (entry_problems(self, _ENTRY_TYPES), _problems(self))  # the second relies on the first
        if found := next((found for found in map(list, stages) if found), []):
            raise ExerciseError("\n".join(found))

    @property
    def hidden_points(self) -> float:
        """No points: hidden cases are among the cases."""
        return 0

    @property
    def speed(self) -> tuple[()]:
        """No tiers: the time of a program is no measure of its kernels."""
        return ()


_ENTRY_TYPES: Mapping[str, type] = {
    **{"cases": ProgramCase, "safe": ProgramSafe, "uses": ProgramUse, "headers": str, "given": str}
}


def _problems(exercise: ProgramExercise) -> Iterator[str]:
    if not exercise.cases:
        yield "an exercise needs at least one case"
    functions = (check for checks in (exercise.cases, exercise.uses) for check in checks)
    for check in functions:
        if not callable(check.program):
            yield f"{check.name!r}: `program` must be a function of a random generator, but is {check.program!r}"
    for safe in exercise.safe:
        if safe.kind not in SAFE_KINDS:
            yield f"ProgramSafe({safe.kind!r}): there is no such kind; kinds: {', '.join(SAFE_KINDS)}"
    for name in exercise.given:
        if name not in exercise.headers:
            yield f"`given` names {name!r}, which is not among the headers"
    yield from repeated_names(
        {
            "case": [case.name for case in exercise.cases],
            "safe check": [safe.kind for safe in exercise.safe],
            "uses check": [use.name for use in exercise.uses],
        }
    )
    yield from point_problems(exercise)


def _program_problems(program: Program) -> Iterator[str]:
    if not isinstance(program.expected, str) and not callable(program.expected):
        yield f"Program: `expected` must be a text or a function, but is {program.expected!r}"
    yield from _not_texts(program.args, "args")
    yield from _not_texts(program.writes, "writes")
    for name in (*program.files, *program.writes):
        if not name or "/" in name or name in (".", "..", "program"):
            yield f"Program: {name!r} is no name of a file in the working folder"
    if not 0 < program.timeout_s <= MAX_TIMEOUT_S:
        yield f"Program: `timeout_s` is {program.timeout_s!r}; write a number of seconds up to {MAX_TIMEOUT_S:g}"
    for limit in ("memory_bytes", "device_bytes", "output_bytes", "disk_bytes"):
        value: Any = getattr(program, limit)
        if not 0 < value <= MAX_MEMORY_BYTES:
            yield f"Program: `{limit}` is {value!r}; write a number of bytes up to {MAX_MEMORY_BYTES:,}"


def _not_texts(values: Iterable[Any], name: str) -> Iterator[str]:
    if isinstance(values, str) or not isinstance(values, Sequence) or any(not isinstance(v, str) for v in values):
        yield f"Program: `{name}` must be a tuple of texts, but is {values!r}"
