"""`gpulab course` writes a course repository, and `gpulab handout` the students' copy of one."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from mistaken import KERNEL, course

from pytest_gpulab.authoring.scaffold import shipped
from pytest_gpulab.command import main
from pytest_gpulab.grading.catalogue import Catalogue

CASES = 'cases=tuple(Case(f"n={n}", n, 12) for n in (1, 2, 33, 1025)),'
VISIBLE = ["n=1", "n=2", "n=33"]
SECRETS = ("4099", "8191", "secret", "adversarial")
HIDDEN = {
    "in a tuple": """cases=(
        *(Case(f"n={n}", n, 12) for n in (1, 2, 33)),  # n=4099 is the secret
        Case("n=4099", 4099, 6, hidden=True),
        Case("n=8191", 8191, 6, ("random",), hidden=True),
    ),""",
    "in a comprehension": """cases=(
        *(Case(f"n={n}", n, 12) for n in (1, 2, 33)),
        *(Case(f"n={n}", n, 6, hidden=True) for n in (4099, 8191)),
    ),""",
    "in a tuple of its own": """cases=tuple(Case(f"n={n}", n, 12) for n in (1, 2, 33))
    + tuple(Case(f"n={n}", n, 6, hidden=True) for n in (4099, 8191)),""",
    "in a list of its own": """cases=[Case(f"n={n}", n, 12) for n in (1, 2, 33)]
    + [Case(f"n={n}", n, 6, hidden=True) for n in (4099, 8191)],""",
    "by its place": """cases=(
        *(Case(f"n={n}", n, 12) for n in (1, 2, 33)),
        Case("n=8191", 8191, 12, ("random",), Case("", 1, 1).variant, True),
    ),""",
    "without points": """cases=(
        *(Case(f"n={n}", n, 16) for n in (1, 2, 33)),
        Case("n=8191", 8191, 0, ("random",), hidden=True),
    ),""",
}


def run(*words: object) -> int:
    return main.main([str(word) for word in words])


def texts(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_a_course_has_the_shipped_exercises_and_solutions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "course"
    assert run("course", folder) == 0
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()[2:6]] == [
        *("README.md", "INSTRUCTOR.md", "pyproject.toml", ".gitignore")
    ]
    assert Catalogue(folder / "exercises").names == Catalogue(shipped("exercises")).names != ()
    written = texts(folder)
    for name in ("exercises", "solutions"):
        for path, text in texts(shipped(name)).items():
            assert written[f"{name}/{path}"] == text


@pytest.mark.parametrize("taken", ["exercises", "README.md", ".gitignore"])
def test_a_course_overwrites_nothing(taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / taken).mkdir()
    assert run("course", tmp_path) == 2
    assert capsys.readouterr().err == f"gpulab course: {tmp_path / taken} exists already\n"
    assert [path.name for path in tmp_path.iterdir()] == [taken]


def test_a_course_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run("course", tmp_path / "file" / "course") == 2
    assert capsys.readouterr().err.startswith("gpulab course: cannot write ")


def test_students_get_the_shipped_exercises_without_solutions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("course", tmp_path / "course")
    (tmp_path / "course" / "exercises" / "scan" / "notes.md").write_text("the trick")
    (tmp_path / "course" / "exercises" / "scan" / "scan_solved.cu").write_text(KERNEL)
    (tmp_path / "course" / "roster.csv").write_text("id\n4711\n")
    capsys.readouterr()
    assert run("handout", tmp_path / "course", tmp_path / "copy") == 0
    printed = capsys.readouterr().out.splitlines()
    assert "scan: 15 of 15 cases; left out: notes.md, scan_solved.cu" in printed
    assert printed[-1] == f"wrote {tmp_path / 'copy'}"
    original = {
        name: text
        for name, text in texts(tmp_path / "course").items()
        if not name.startswith(("solutions/", "INSTRUCTOR", "roster"))
        and not name.endswith(("notes.md", "scan_solved.cu"))
        and "__pycache__" not in name
    }
    assert texts(tmp_path / "copy") == original


@pytest.mark.parametrize("cases", HIDDEN.values(), ids=HIDDEN)
def test_nothing_of_hidden_cases_is_handed_out(cases: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course(tmp_path, exercise=(CASES, cases))
    (tmp_path / "README.md").write_text("# Course\n")
    assert run("handout", tmp_path, tmp_path / "out" / "copy.zip") == 0
    assert capsys.readouterr().out.startswith("shift: 3 of ")
    with zipfile.ZipFile(tmp_path / "out" / "copy.zip") as archive:
        archive.extractall(tmp_path / "students")
        assert not [name for name in archive.namelist() if "__pycache__" in name]
    written = texts(tmp_path / "students" / "copy")
    assert set(written) == {
        *("README.md", "exercises/shift/README.md", "exercises/shift/exercise.py"),
        *("exercises/shift/naive.cu", "exercises/shift/shift.cu"),
    }
    assert [(name, secret) for name, text in written.items() for secret in SECRETS if secret in text] == []
    exercise = Catalogue(tmp_path / "students" / "copy" / "exercises").load("shift").exercise
    assert [case.name for case in exercise.cases] == VISIBLE
    is_worth_points = ", 6, " in cases or ", 12, (" in cases
    assert exercise.hidden_points == (12 if is_worth_points else 0)
    assert ("- shift: 12 points" in written["README.md"]) == is_worth_points


@pytest.mark.simulator
def test_a_handed_out_exercise_passes_the_check_and_grades_its_visible_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course(tmp_path / "course", exercise=(CASES, HIDDEN["in a tuple"]))
    run("handout", tmp_path / "course", tmp_path / "copy")
    (tmp_path / "solutions" / "shift").mkdir(parents=True)
    (tmp_path / "solutions" / "shift" / "01.cu").write_text(KERNEL)
    (tmp_path / "solutions" / "shift" / "expected.toml").write_text('["01.cu"]\npoints = 78\n')
    capsys.readouterr()
    assert run("check", tmp_path / "copy" / "exercises", "--solutions", tmp_path / "solutions") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("shift: 0 errors, 0 warnings\n  points: compile 0, correct 48, safe 12"), printed


def test_names_that_only_hidden_cases_use_are_removed(tmp_path: Path) -> None:
    folder = course(
        tmp_path,
        exercise=(
            "exercise = Exercise(",
            """import secret_sizes
from secret_sizes import MORE
SIZES = (*secret_sizes.SECRET, *MORE)


def secret_name(n):
    return f"secret-{n}"


SECRET = Case("secret", 77, 2, hidden=True)
MORE_CASES = []
MORE_CASES.append(Case("secret-5", 5, 0, hidden=True))
exercise = Exercise(""",
        ),
    )
    text = (folder / "exercise.py").read_text()
    hidden = 'cases=(*(Case(f"n={n}", n, 12) for n in (1, 2, 33)), SECRET, *MORE_CASES, '
    hidden += "*(Case(secret_name(n), n, 5, hidden=True) for n in SIZES)),"
    (folder / "exercise.py").write_text(text.replace(CASES, hidden))
    (folder / "secret_sizes.py").write_text("SECRET = (4099,)\nMORE = (8191,)\n")
    assert run("handout", tmp_path, tmp_path / "copy") == 0
    written = texts(tmp_path / "copy")
    assert "exercises/shift/secret_sizes.py" not in written
    assert [(name, secret) for name, text in written.items() for secret in SECRETS if secret in text] == []


def test_files_that_an_exercise_needs_are_handed_out(tmp_path: Path) -> None:
    folder = course(tmp_path, exercise=("import numpy as np\n", "import numpy as np\nimport table\n"))
    (folder / "table.py").write_text('from parts import more\nNAME = "values.txt"\n')
    (folder / "parts").mkdir()
    (folder / "parts" / "__init__.py").write_text("more = 1\n")
    for name in ("values.txt", "grid.png", "draft.txt"):
        (folder / name).write_text("1")
    with (folder / "README.md").open("a") as readme:
        readme.write("\n![grid](grid.png)\n")
    assert run("handout", tmp_path, tmp_path / "copy") == 0
    names = {name.rpartition("shift/")[2] for name in texts(tmp_path / "copy")}
    assert names >= {"table.py", "parts/__init__.py", "values.txt", "grid.png"} and "draft.txt" not in names


REFUSED = {
    "hidden by a condition": (
        {"exercise": (CASES, 'cases=tuple(Case(f"n={n}", n, 12, hidden=n > 99) for n in (1, 2, 33, 1025)),')},
        "shift/exercise.py:30 computes `hidden`; write each hidden case as Case(..., hidden=True) in a tuple",
    ),
    "hidden by a mapping": (
        {"exercise": (CASES, CASES[:-1] + ' + (Case("n=9", 9, 0, **{"hidden": True}),),')},
        "shift: cannot remove the hidden cases ['n=9']; write each hidden case as Case(..., hidden=True) in a tuple",
    ),
    "a visible case that needs a hidden one": (
        {
            "exercise": (
                CASES,
                'cases=(lambda hidden: (Case("n=2", hidden.size - 1023, 48), hidden))'
                '(Case("n=1025", 1025, 0, hidden=True)),',
            )
        },
        "shift: without its hidden cases, the exercise does not load: AttributeError",
    ),
    "a README that names one": (
        {
            "exercise": (CASES, HIDDEN["in a tuple"]),
            "readme": ("# Shift\n", "# Shift\n\nTry n=4099, too.\n"),
        },
        "exercises/shift/README.md:3 has 'n=4099', a name of a hidden case: remove it there",
    ),
    "a pattern of hidden cases only": (
        {
            "exercise": (
                CASES,
                'cases=(*(Case(f"n={n}", n, 12) for n in (1, 2, 33)), Case("x9", 9, 12, ("shift",), hidden=True)),',
            )
        },
        "exercises/shift/exercise.py:10 has 'shift', a name of a hidden case: remove it there",
    ),
    "a broken exercise": ({"exercise": ("n, 12)", "n, 11)")}, "shift: the checks' points add up to 96, not 100"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_a_course_without_a_safe_copy_is_refused(
    changes: dict[str, tuple[str, str]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course(tmp_path, **changes)
    code = run("handout", tmp_path, tmp_path / "copy")
    assert code == 2
    assert capsys.readouterr().err.startswith(f"gpulab handout: {message}")
    assert not (tmp_path / "copy").exists()


def test_a_pattern_of_the_package_is_no_secret(tmp_path: Path) -> None:
    hidden = 'cases=(*(Case(f"n={n}", n, 12) for n in (1, 2, 33)), Case("x9", 9, 12, ("bits",), hidden=True)),'
    course(tmp_path, exercise=(CASES, hidden), readme=("# Shift\n", "# Shift\n\nNumbers of 32 bits.\n"))
    assert run("handout", tmp_path, tmp_path / "copy") == 0


def test_sizes_of_hidden_cases_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course(tmp_path, exercise=(CASES, HIDDEN["in a tuple"]), naive=("int i = ", "int i = 0 * 8191 + "))
    assert run("handout", tmp_path, tmp_path / "copy") == 0
    assert "Look at exercises/shift/naive.cu:5 has 8191, the size of a hidden case.\n" in capsys.readouterr().out


@pytest.mark.parametrize("out", ["copy", "copy.zip"])
def test_a_handout_overwrites_nothing(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course(tmp_path)
    (tmp_path / out).write_text("mine")
    assert run("handout", tmp_path, tmp_path / out) == 2
    assert capsys.readouterr().err == f"gpulab handout: {tmp_path / out} exists already\n"
    assert (tmp_path / out).read_text() == "mine"


def test_a_folder_without_exercises_is_no_course(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("handout", tmp_path, tmp_path / "copy") == 2
    assert capsys.readouterr().err == (
        f"gpulab handout: {tmp_path} has no exercise: a folder exercises/NAME with an exercise.py\n"
    )


def test_a_handout_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course(tmp_path)
    (tmp_path / "file").write_text("")
    assert run("handout", tmp_path, tmp_path / "file" / "in" / "copy") == 2
    assert capsys.readouterr().err.startswith("gpulab handout: cannot write ")
