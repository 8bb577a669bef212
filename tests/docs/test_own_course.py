"""The commands of docs/course.md, in an empty folder: from a built wheel to the grades of a class."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from doc_pages import ROOT, Block, blocks, commands, first_difference
from hang_guard import HANG_S
from test_samples import changed, environment

from pytest_gpulab.authoring.scaffold import shipped

PAGE = ROOT / "docs" / "course.md"
DIVIDER = "\x1e"


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """An empty folder but for the wheel, and for a virtual environment with the package's dependencies."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=HANG_S)
    dependencies, installed = tmp_path / "dependencies", Path(sysconfig.get_path("purelib"))
    dependencies.mkdir()
    for path in installed.iterdir():
        if "pytest_gpulab" not in path.name:
            (dependencies / path.name).symlink_to(path)
    packages = tmp_path / ".venv" / installed.relative_to(sys.prefix)
    packages.mkdir(parents=True)
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return tmp_path


def test_a_course_begins_with_a_wheel(fresh: Path) -> None:
    variables = environment() | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}
    del variables["PYTHONDONTWRITEBYTECODE"]  # or each command would compile the package
    shell = subprocess.Popen(
        ["bash"],
        cwd=fresh,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with shell:
        problems = [problem for block in blocks(PAGE, "console", "diff") for problem in followed(block, fresh, shell)]
        imported = output(shell, "python -c 'import pytest_gpulab; print(pytest_gpulab.__file__)'")
    assert not problems, "\n".join(problems)
    assert Path(imported.strip()).is_relative_to(fresh / ".venv"), "the checkout was used, not the wheel"


def followed(block: Block, folder: Path, shell: subprocess.Popen[str]) -> list[str]:
    """Run a block's commands in the shell, or change its file; return the differences to what the page shows."""
    if block.language == "diff":
        file = folder / block.file
        file.write_text(changed(block, file.read_text(encoding="utf-8")), encoding="utf-8")
        return []
    shown = ((command, output(shell, command.text)) for command in commands(block))
    found = ((command, first_difference(command.output, printed)) for command, printed in shown)
    return [f"{block.place}: $ {command.text}\n{difference}" for command, difference in found if difference]


def output(shell: subprocess.Popen[str], command: str) -> str:
    assert shell.stdin and shell.stdout
    shell.stdin.write(f"{command} </dev/null\nprintf '{DIVIDER}\\n'\n")
    shell.stdin.flush()
    lines = []
    for line in shell.stdout:
        text, divider, _ = line.partition(DIVIDER)
        lines.append(text)
        if divider:
            break
    return "".join(lines)


def test_the_wheel_has_the_repositorys_exercises_and_solutions(fresh: Path) -> None:
    """The editable installation has no copy of its own, which would be outdated at the next change."""
    (wheel,) = fresh.glob("*.whl")
    assert wheel.name in PAGE.read_text(encoding="utf-8")
    paths = [path for name in ("exercises", "solutions") for path in (ROOT / name).rglob("*") if path.is_file()]
    files = {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        assert {name.partition("/shipped/")[2] for name in archive.namelist()} - {""} == files
    assert (shipped("exercises") / "reduction" / "naive.cu").read_text() == (
        ROOT / "exercises" / "reduction" / "naive.cu"
    ).read_text()
