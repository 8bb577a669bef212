"""Grades of whole programs: findings on output, files, launches and builds, and what must be there to grade at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lean_pytest import WITHOUT

from pytest_gpulab.command.main import main
from pytest_gpulab.devices.programs.confinement import compilers
from pytest_gpulab.exercise import ExerciseError
from pytest_gpulab.grading.catalogue import LoadedProgram
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.programs.grader import ProgramGrader
from pytest_gpulab.program_exercise import (
    Launches,
    Output,
    Program,
    ProgramCase,
    ProgramExercise,
    ProgramSafe,
    ProgramUse,
)

pytestmark = pytest.mark.simulator
EXERCISE = """
from pytest_gpulab.program_exercise import Launches, Program, ProgramCase, ProgramExercise, ProgramSafe

exercise = ProgramExercise(
    title="print a number",
    cases=(ProgramCase("seven", lambda rng: Program(expected="7", args=("7",), launches=(Launches("show"),)), 90),),
    safe=(ProgramSafe("leak", 10),),
)
"""
RIGHT = """#include <cstdio>
#include <cstdlib>
__global__ void show(int number) { printf("%d\\n", number); }
int main(int argc, char **argv)
{
    show<<<1, 1>>>(atoi(argv[1]));
    cudaDeviceSynchronize();
}
"""
SAYS = """#include <cstdio>
#include <cstdlib>
#include <cstring>
__global__ void work() {}
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "launch"))
            work<<<1, dim3(1, (i + 1) / 2)>>>();
        else if (!strcmp(argv[i], "fail"))
            return fprintf(stderr, "the reason\\n"), 3;
        else if (!strcmp(argv[i], "abort"))
            abort();
        else if (!strcmp(argv[i], "too many"))
            memset(new int[argc - 3], 0, 4);
        else if (!strcmp(argv[i], "file"))
            fputs("contents", fopen("out.txt", "w"));
        else
            puts(argv[i]);
    }
    cudaDeviceSynchronize();
}
"""


def exercise_with(*programs: Program, **more: Any) -> ProgramExercise:
    each = 100 / len(programs)
    cases = tuple(ProgramCase(str(n), lambda rng, p=program: p, each) for n, program in enumerate(programs))
    return ProgramExercise("a test", cases, **more)


def graded(folder: Path, exercise: ProgramExercise, source: str = SAYS, is_enabled: bool = True) -> list[CheckResult]:
    path = folder / "says.cu"
    path.write_text(source, encoding="utf-8")
    return list(ProgramGrader(LoadedProgram("says", folder, exercise), path, 1, is_enabled).grade().checks)


def test_output_files_exit_codes_and_launches_are_compared(tmp_path: Path) -> None:
    def wrong(output: Output) -> str:
        return "" if output.files["out.txt"] == b"contents" else "out.txt is wrong"

    bounds = (Launches("work", at_least=2), Launches(at_most=3))
    programs: Mapping[str, Program] = {
        "": Program("hello\n\n", ("hello  ",)),
        "Wrong output in line 1: printed `hello`, expected `bye`": Program("bye", ("hello",)),
        "Wrong output in line 2: printed nothing, expected `more`": Program("hello\nmore", ("hello",)),
        "Wrong output in line 1: printed `hello`, expected nothing": Program("", ("hello",)),
        "The program ended with exit code 3 instead of 0": Program("", ("fail",)),
        "The program was ended by SIGABRT": Program("", ("abort",)),
        "The program was ended by SIGABRT: the host asked for more memory than it can have": Program("", ("too many",)),
        "The file out.txt was not written": Program("", (), writes=("out.txt",)),
        "out.txt is wrong": Program(lambda output: "out.txt is wrong", ("file",), writes=("out.txt",)),
        "Too few launches: 1 launch of `work`; this check requires 2": Program("", ("launch",), launches=bounds),
        "Too many launches: 4 launches; this check allows 3": Program("", ("launch",) * 4, launches=bounds),
        "The program wrote more than 10 bytes": Program("", ("x" * 50,), output_bytes=10),
        "The program wrote more than 11 bytes": Program("", ("x" * 100_000,) * 3, output_bytes=11),  # SIGPIPE ends it
    }
    right = (Program(wrong, ("file",), writes=("out.txt",)), Program("", ("fail",), exit_code=3))
    results = graded(tmp_path, exercise_with(*programs.values(), *right))
    found = [result.findings[0].what if result.findings else "" for result in results[1:]]
    assert found == [*programs, "", ""]
    assert [result.verdict for result in results].count("passed") == 4
    (exit_code,) = (result.findings[0] for result in results if "exit code" in str(result.findings))
    assert exit_code.evidence == ("the reason",)


def test_wrong_output_is_shown_with_the_launches(tmp_path: Path) -> None:
    programs = [Program("more", ("launch",) * count) for count in (0, 3, 9)]
    found = [result.findings[0] for result in graded(tmp_path, exercise_with(*programs))[1:]]
    few = "work<<<1, 1>>> (2 times), work<<<1, (1, 2, 1)>>>"
    assert [each.evidence[0].removeprefix("the program launched ") for each in found] == [
        "no kernel",
        few,
        f"{few} (2 times), work<<<1, (1, 3, 1)>>> (2 times), work<<<1, (1, 4, 1)>>> (2 times), ...",
    ]


def test_without_a_given_kernel_a_use_is_a_further_run(tmp_path: Path) -> None:
    use = ProgramUse("more", lambda rng: Program("more", ("less",)), 0, "Not more", required=False)
    exercise = exercise_with(Program("hello", ("hello",)), uses=(use,))
    result = graded(tmp_path, exercise)[-1]
    assert result.verdict == "missed"
    assert result.findings[0].what == "Not more: wrong output in line 1: printed `less`, expected `more`"


def test_hidden_cases_stay_hidden(tmp_path: Path) -> None:
    case = ProgramCase("secret", lambda rng: Program("bye", ("hello",)), 90, hidden=True)
    results = graded(tmp_path, ProgramExercise("a test", (case,), (ProgramSafe("leak", 10),)))
    assert results[1].hidden and results[1].verdict == "failed"
    assert results[2].findings[0].hidden and results[2].findings[0].because == "correct[secret]"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ('#include "/etc/passwd"\nint main() {}\n', "The file may include headers by their plain names only"),
        ('asm(".incbin \\"/etc/passwd\\"");\nint main() {}\n', "The file does not compile"),
        ('#line 1 "/etc/passwd"\nint main() {}\n', "The file uses `#line`."),
        ("int main() { return x; }\n", 'The file does not compile: identifier "x" is undefined'),
        ("int add();\nint main() { return add(); }\n", "The file does not compile"),
        ("", "The file is empty."),
    ],
)
def test_a_program_that_is_not_built_says_why(tmp_path: Path, source: str, what: str) -> None:
    compile_check, case = graded(tmp_path, exercise_with(Program("")), source)
    assert compile_check.verdict == case.verdict == "failed"
    assert compile_check.findings[0].what.startswith(what)
    assert case.findings[0].because == "compile"
    assert "root:" not in str(compile_check.findings)


def test_mistakes_of_the_exercise_cost_nothing(tmp_path: Path) -> None:
    def broken(rng: object) -> Program:
        raise ZeroDivisionError("of the instructor")

    exercise = ProgramExercise("a test", (ProgramCase("x", broken, 100),))
    result = graded(tmp_path, exercise)[1]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    no_text = exercise_with(Program(lambda output: 7, ("hello",)))  # type: ignore[arg-type, return-value]
    assert "it returned 7 instead of a text" in graded(tmp_path, no_text)[1].findings[0].what
    no_header = exercise_with(Program(""), headers=("gone.cuh",))
    assert graded(tmp_path, no_header)[1].verdict == "not gradable"


def test_nothing_runs_without_permission_or_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = exercise_with(Program("hello", ("hello",)))
    first, second = graded(tmp_path, exercise, is_enabled=False)
    assert {first.verdict, second.verdict} == {"not gradable"}
    assert (first.findings[0].code, second.findings[0].because) == ("not-enabled", "compile")
    monkeypatch.setattr(compilers, "refusal", lambda: "bubblewrap (bwrap) is not installed")
    (found,) = graded(tmp_path, exercise)[0].findings
    assert found.code == "no-sandbox"
    assert "bubblewrap (bwrap) is not installed" in found.what and "apt-get install bubblewrap" in found.what


def pytest_in(folder: Path, *words: str) -> tuple[int, str, dict[str, Any]]:
    report = folder / "grades.json"
    report.unlink(missing_ok=True)
    options = ["--gpulab", "--gpulab-device=sim", f"--gpulab-report=json:{report}", "-pno:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *WITHOUT, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    grades = json.loads(report.read_text())["grades"] if report.exists() else []
    return done.returncode, done.stdout + done.stderr, {grade["submission"]: grade for grade in grades}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "exercises" / "show").mkdir(parents=True)
    (tmp_path / "exercises" / "show" / "exercise.py").write_text(EXERCISE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpulab_programs = true\n")
    for student, source in {"ann": RIGHT, "bob": RIGHT.replace("atoi(argv[1])", "8")}.items():
        (tmp_path / "class" / student).mkdir(parents=True)
        (tmp_path / "class" / student / "show.cu").write_text(source)
    return tmp_path


def test_a_class_of_programs_is_graded_if_the_configuration_says_so(course: Path) -> None:
    _, said, grades = pytest_in(course, "--gpulab-submissions=class", "--gpulab-workers=1")
    points = {name: (grade["points"], grade["max_points"]) for name, grade in grades.items()}
    assert points == {"ann/show.cu": (100, 100), "bob/show.cu": (0, 100)}, said
    assert "printed `8`, expected `7`" in str(grades["bob/show.cu"])


def test_without_the_option_a_class_loses_no_points(course: Path) -> None:
    (course / "pytest.ini").write_text("[pytest]\n")
    code, said, grades = pytest_in(course, "--gpulab-submissions=class", "--gpulab-workers=1")
    assert {grade["max_points"] for grade in grades.values()} == {0}
    assert "--gpulab-programs" in said
    assert code != 0  # nothing at all was graded


def test_explain_names_the_command_for_programs(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = course / "class" / "ann" / "show.cu"
    assert main(["explain", str(file), "--exercises", str(course / "exercises")]) == 2
    assert f"show asks for a whole program: run it with gpulab run {file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"args": "7"}, "Program: `args` must be a tuple of texts, but is '7'"),
        ({"files": {"../x": b""}}, "Program: '../x' is no name of a file in the working folder"),
        ({"timeout_s": "long"}, "Program: `timeout_s` must be a number, but is 'long'"),
        ({"timeout_s": 0}, "Program: `timeout_s` is 0; write a number of seconds up to 300"),
        ({"device_bytes": 0}, "Program: `device_bytes` is 0; write a number of bytes up to 4,294,967,296"),
        ({"expected": 7}, "Program: `expected` must be a text or a function, but is 7"),
    ],
)
def test_a_wrong_run_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ExerciseError) as raised:
        Program(**{"expected": "", **fields})
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 2}, "ProgramExercise: `version` must be a text, but is 2"),
        ({"cases": ()}, "an exercise needs at least one case"),
        ({"cases": ProgramCase("x", Program, 100)}, "ProgramExercise: `cases` must be a tuple, but is a ProgramCase"),
        ({"cases": (7,)}, "ProgramExercise: `cases` holds 7, which is no ProgramCase"),
        ({"cases": (ProgramCase("x", 7, 100),)}, "'x': `program` must be a function of a random generator, but is 7"),
        ({"safe": (ProgramSafe("speed", 0),)}, "ProgramSafe('speed'): there is no such kind"),
        ({"given": ("x.cuh",)}, "`given` names 'x.cuh', which is not among the headers"),
        ({"cases": (ProgramCase("x", Program, 50),) * 2}, "more than one case is called ['x']"),
        ({"cases": (ProgramCase("x", Program, 10),)}, "the checks' points add up to 10, not 100"),
    ],
)
def test_a_wrong_exercise_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ExerciseError) as raised:
        ProgramExercise(**{"title": "a test", "cases": (ProgramCase("x", Program, 100),), **fields})
    assert message in str(raised.value)
