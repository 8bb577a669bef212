"""Every sample of the documentation does what the page says: Python runs, CUDA compiles, commands print what is shown.

A page's blocks are taken in order, in a copy of the course that is the page's own. A block that names a file is written
to it; a `diff` block changes the file as it was last written in full, by the page or by a command. Lines of Python
print what the `text` block below them shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, Block, blocks, commands, first_difference
from hang_guard import HANG_S
from lean_pytest import WITHOUT

from pytest_gpulab.devices.compiler import nvrtc

DIVIDER = "\x1e"
# The README shows a run of all solutions; the test that makes this run anyway compares it. test_own_course.py has the
# commands of course.md.
ELSEWHERE = ("README.md", "course.md")
SAMPLED = [page for page in PAGES if page.name not in ELSEWHERE and blocks(page, "console", "python")]


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A copy of what a course consists of: exercises, solutions, pytest's settings."""
    for name in ("exercises", "solutions"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()  # named in pyproject.toml
    return tmp_path


def environment() -> dict[str, str]:
    """The reader's terminal: 100 columns, no GPU, and none of the plugins that only these tests need."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "COLUMNS": "100",
        "PYTEST_ADDOPTS": " ".join(("--gpulab-device=sim", *WITHOUT)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.parametrize("page", SAMPLED, ids=lambda page: page.stem)
def test_a_pages_samples_do_what_it_says(page: Path, course: Path) -> None:
    """First the commands, on the files that stand above them, then the page's Python as one script."""
    problems: list[str] = []
    whole: dict[str, str] = {}  # files as last written in full
    for block in blocks(page):
        if block.file and block.language == "diff":
            path = course / block.file
            write(path, changed(block, whole.get(block.file) or path.read_text(encoding="utf-8")))
        elif block.file:
            whole[block.file] = block.text
            write(course / block.file, block.text)
        elif block.language == "console":
            problems += run(block, course)
    if blocks(page, "python"):
        problems += run_python(page, course)
    assert not problems, "\n".join(problems)


def run(block: Block, folder: Path) -> Iterator[str]:
    for command in commands(block):
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        difference = first_difference(command.output, done.stdout)
        if difference:
            yield f"{block.place}: $ {command.text}\n{difference}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def changed(block: Block, text: str) -> str:
    """Apply a diff without line numbers: its lines without the added ones stand in the text exactly once."""
    lines = [(line[:1], line[1:]) for line in block.text.splitlines(keepends=True)]
    before = "".join(line for sign, line in lines if sign != "+")
    assert text.count(before) == 1, f"{block.place}: to be changed, but in the file {text.count(before)} times"
    return text.replace(before, "".join(line for sign, line in lines if sign != "-"))


def run_python(page: Path, course: Path) -> Iterator[str]:
    script = course / f"{page.stem}.py"
    script.write_text(as_script(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=course,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, f"{page.name} (the line numbers are the page's):\n{done.stderr}"
    for block, printed in zip(blocks(page, "python"), done.stdout.split(DIVIDER), strict=False):
        shown = output_below(page, block)
        difference = first_difference(shown.text.splitlines() if shown else [], printed)
        if difference:
            yield f"{block.place}: {difference}"


def as_script(page: Path) -> str:
    """Return the page's Python, every line where it stands in the page, with a divider after each block's output."""
    lines: dict[int, str] = {}
    for block in blocks(page, "python"):
        body = block.text.splitlines()
        lines |= dict(enumerate(body, block.line))
        lines[block.line + len(body)] = f"print(end={DIVIDER!r})"
    return "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1)) + "\n"


def output_below(page: Path, block: Block) -> Block | None:
    """Return the `text` block that comes next, if nothing but a blank line stands between."""
    end = block.line + block.text.count("\n")
    return next((text for text in blocks(page, "text") if text.line == end + 3), None)


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in blocks(page, "cuda")], ids=lambda block: block.place
)
def test_cuda_compiles(block: Block) -> None:
    headers = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("exercises/*/*.cuh")}
    ptx, _ = nvrtc.compile_ptx(block.text, Path(block.file or "sample.cu").name, "compute_90", headers=headers)
    assert ".entry" in ptx, f"{block.place}: there is no kernel in this sample"
