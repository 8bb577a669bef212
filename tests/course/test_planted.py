"""A folder of submissions is data: what students plant beside, above and below their files never runs or configures.

Every planted Python file leaves a mark when it is run; every planted configuration changes what is printed if it is
obeyed; every planted header breaks what includes it; every link leads to a file that is not the student's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hang_guard import HANG_S

sys.path.append(str(Path(__file__).parents[1] / "plugin"))
from course import EXERCISE, NAIVE, RIGHT, WITHOUT

MARK = "GPULAB_TEST_MARK"
EVIL = f"import os, pathlib\npathlib.Path(os.environ[{MARK!r}]).open('a').write(__file__ + '\\n')\n"
MODULES = ["conftest", "sitecustomize", "usercustomize", "__init__", "__main__", "test_twice", "twice", "exercise"]
MODULES += ["plugin", "numpy", "json", "resource", "cuda", "nvidia", "tabulate", "pytest", "_pytest"]
MODULES += ["pytest_gpulab", "setup", "noxfile"]
OPTIONS = "--collect-only -p no:gpulab -c pytest.ini"
PLANTS = {
    **{f"{name}.py": EVIL for name in MODULES},
    "pytest.ini": f"[pytest]\naddopts = {OPTIONS}\ngpulab_seed = 666\n",
    ".pytest.ini": f"[pytest]\naddopts = {OPTIONS}\n",
    "pytest.toml": f"[pytest]\naddopts = ['{OPTIONS}']\n",
    "pyproject.toml": f"[tool.pytest.ini_options]\naddopts = '{OPTIONS}'\ngpulab_seed = '666'\n",
    "setup.cfg": f"[tool:pytest]\naddopts = {OPTIONS}\ngpulab_seed = 666\n",
    "tox.ini": f"[pytest]\naddopts = {OPTIONS}\ngpulab_seed = 666\n",
    ".coveragerc": "[run]\nplugins = plugin\n",
    "evil.pth": "import sitecustomize\n",
    "pyvenv.cfg": "home = /\n",
    "naive.cu": "#error the planted baseline\n",
    "own.cuh": "#error the planted header\n",
    "gpulab.cuh": "#error the planted header\n",
    "cuda_runtime.h": "#error the planted header\n",
    "expected.toml": "[[submission]]\nfile = 'twice.cu'\n",
}
PLACES = ("", "alice", "alice/exercises/twice", "alice/test", "bob", "bob/twice", "dave", "dave/deeper/still")
STUDENTS = {"alice": "alice/twice.cu", "bob": "bob/twice/twice.cu", "carol": "carol/twice.cu"}
SOURCE = '#include <gpulab.cuh>\n#include "own.cuh"\n#include <cuda_runtime.h>\n' + RIGHT.replace("2 *", "OWN *")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A course, and a class that planted everything everywhere; afterwards, none of it may have run."""
    exercise = EXERCISE.replace("safe=(", 'headers=("own.cuh",),\n    safe=(', 1)
    write(tmp_path / "course/exercises/twice/exercise.py", exercise)
    write(tmp_path / "course/exercises/twice/naive.cu", NAIVE)
    write(tmp_path / "course/exercises/twice/own.cuh", "#define OWN 2\n")
    write(tmp_path / "course/pytest.ini", "[pytest]\nfilterwarnings = error\n")
    (tmp_path / "elsewhere").mkdir()
    for place in PLACES:
        for name, text in PLANTS.items():
            write(tmp_path / "class" / place / name, text)
    for name in STUDENTS.values():
        write(tmp_path / "class" / name, SOURCE)
        os.utime(tmp_path / "class" / name, (4e9, 4e9))  # the newest
    yield tmp_path
    marked = (tmp_path / "mark").read_text() if (tmp_path / "mark").exists() else ""
    assert not marked, f"these ran:\n{marked}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def graded(folder: Path, cwd: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pytest --gpulab` from a working folder, as at a terminal; `@` stands for the folder's path."""
    command = [str(Path(sys.executable).with_name("pytest")), *WITHOUT, "-p", "no:cacheprovider", "-vrA"]
    command += [
        "--gpulab",
        "--gpulab-device=sim",
        "-k",
        "compile",
        *(each.replace("@", str(folder)) for each in arguments),
    ]
    command += ["--gpulab-workers=1"] if any("--gpulab-submissions" in each for each in arguments) else []
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    environment[MARK] = str(folder / "mark")
    return subprocess.run(
        command, cwd=folder / cwd, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )


def told(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def assert_all_is_as_without(folder: Path, done: subprocess.CompletedProcess[str], ids: Sequence[str]) -> None:
    lines = done.stdout.splitlines()
    passed = sorted(
        line.split()[1].removeprefix("course/").removeprefix("../course/")
        for line in lines
        if line.startswith("PASSED ")
    )
    assert passed == sorted(ids), told(done)
    assert done.returncode == 0 and not re.search(r"seed 666\b", done.stdout) and "planted" not in told(done)
    (rootdir,) = [line.partition("rootdir: ")[2] for line in done.stdout.splitlines() if line.startswith("rootdir: ")]
    assert Path(rootdir).name in ("course", "elsewhere", folder.name)


IN_CLASS = [f"{name}::compile" for name in STUDENTS.values()]


@pytest.mark.parametrize(
    ("cwd", "options"),
    [
        ("course", ["--gpulab-submissions=../class"]),
        (".", ["--gpulab-submissions=class", "-c", "course/pytest.ini"]),
        ("elsewhere", ["--gpulab-submissions=@/class", "--gpulab-exercises=@/course/exercises"]),
    ],
)
def test_no_file_of_a_class_is_executed_or_read_as_configuration(folder: Path, cwd: str, options: list[str]) -> None:
    done = graded(folder, cwd, *options)
    assert_all_is_as_without(folder, done, IN_CLASS)


def test_no_file_of_a_class_within_the_course_is_executed_or_read_as_configuration(folder: Path) -> None:
    (folder / "class").rename(folder / "course/class")
    assert_all_is_as_without(folder, graded(folder, "course", "--gpulab-submissions=class"), IN_CLASS)


def test_no_file_of_a_zip_is_executed_or_read_as_configuration(folder: Path) -> None:
    with zipfile.ZipFile(folder / "class.zip", "w") as archive:
        for path in sorted((folder / "class").rglob("*")):
            info = zipfile.ZipInfo(path.relative_to(folder / "class").as_posix(), (2020, 1, 1, 0, 0, 0))
            if path.is_file():
                info.date_time = (2030 if path.read_text() == SOURCE else 2020, 1, 1, 0, 0, 0)
                archive.writestr(info, path.read_text())
    assert_all_is_as_without(folder, graded(folder, "course", "--gpulab-submissions=../class.zip"), IN_CLASS)


@pytest.mark.parametrize("planted", ["pytest.ini", "setup.py"])
def test_a_rootdir_among_the_submissions_is_refused(folder: Path, planted: str) -> None:
    """As a word of its own the folder is a path to pytest, which looks for configuration there before plugins load."""
    for path in (folder / "class").iterdir():
        if path.is_file() and path.name != planted:
            path.unlink()
    if planted == "pytest.ini":
        write(folder / "class/pytest.ini", "[pytest]\naddopts = -c pytest.ini --rootdir=.\n")
    done = graded(folder, ".", "--gpulab-submissions", "@/class", "--gpulab-exercises=course/exercises")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--gpulab-submissions=DIR" in done.stderr and "Traceback" not in told(done)


@pytest.mark.parametrize("cwd", ["class", "class/alice", "class/dave/deeper"])
def test_a_class_is_not_graded_from_within(folder: Path, cwd: str) -> None:
    done = graded(folder, cwd, "--gpulab-submissions=@/class", "--gpulab-exercises=@/course/exercises")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "is inside the submissions; no configuration or code is read there" in done.stderr


def test_no_link_of_a_class_is_followed(folder: Path) -> None:
    write(folder / "secret/twice.cu", SOURCE)
    for name in PLANTS:
        write(folder / "secret" / name, PLANTS[name])
    (folder / "class/erin").symlink_to(folder / "secret")
    (folder / "class/alice/linked").symlink_to(folder / "secret")
    (folder / "class/frank").mkdir()
    (folder / "class/frank/twice.cu").symlink_to(folder / "secret/twice.cu")
    done = graded(folder, "course", "--gpulab-submissions=../class")
    passed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    assert passed == IN_CLASS, told(done)
    for name in ("erin", "alice/linked", "frank/twice.cu"):
        assert f"{name}: It is a link" in told(done), told(done)


@pytest.mark.parametrize(
    ("cwd", "prefix", "options"),
    [
        ("course", "../class", ["-c", "pytest.ini"]),
        (".", "class", ["-c", "course/pytest.ini", "--rootdir=.", "--gpulab-exercises=course/exercises"]),
        ("elsewhere", "@/class", ["-c", "@/course/pytest.ini"]),
    ],
)
def test_no_file_beside_named_submissions_is_executed_or_read_as_configuration(
    folder: Path, cwd: str, prefix: str, options: list[str]
) -> None:
    paths = [f"{prefix}/{name}" for name in ("alice/twice.cu", "bob/twice/twice.cu", "carol")]
    above = "class" if cwd == "." else "../class"
    assert_all_is_as_without(folder, graded(folder, cwd, *options, *paths), [f"{above}/{id}" for id in IN_CLASS])


@pytest.mark.parametrize(
    ("cwd", "path"), [("course", "../class"), (".", "class"), ("elsewhere", "@/class/alice/twice.cu")]
)
def test_planted_configuration_that_pytest_finds_is_refused(folder: Path, cwd: str, path: str) -> None:
    for found in (folder / "class").rglob("*"):
        if found.suffix in (".ini", ".toml", ".cfg"):
            found.unlink()
    for place in ("class", "class/alice"):
        write(folder / place / "pytest.ini", "[pytest]\naddopts = -c pytest.ini --collect-only\n")
    done = graded(folder, cwd, "--gpulab-exercises=@/course/exercises", path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "may be a student's and is not used as configuration" in done.stderr
