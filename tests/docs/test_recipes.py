"""Examples that grade others' files name the configuration; without that, planted files are obeyed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import PAGES, blocks, commands
from hang_guard import HANG_S
from lean_pytest import WITHOUT

sys.path += [str(Path(__file__).parents[1] / name) for name in ("course", "plugin")]
from course import EXERCISE, NAIVE, WRONG
from test_planted import EVIL, MARK, OPTIONS, PLANTS

FORGED = {"pytest.ini": "[pytest]\naddopts = -p no:gpulab\n", "conftest.py": EVIL, "result.json": '{"score": 100}'}
BESIDE = {**PLANTS, **FORGED}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A course, and a wrong submission with everything beside it."""
    for name, text in (("exercise.py", EXERCISE), ("naive.cu", NAIVE)):
        write(tmp_path / "course" / "exercises" / "constant_memory" / name, text)
    for name, text in {**BESIDE, "constant_memory.cu": WRONG}.items():
        write(tmp_path / "work" / name, text)
    yield tmp_path
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(machine: Path, command: list[str], folder: Path, **variables: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = " ".join(("--gpulab-device=sim", *WITHOUT))
    environment |= {"PATH": path, "PYTEST_ADDOPTS": options, MARK: str(machine / "mark"), **variables}
    subprocess.run(command, cwd=folder, env=environment, timeout=HANG_S, check=False, capture_output=True)


def test_the_plants_bite_without_the_recipes_options(machine: Path) -> None:
    """Otherwise tests with these plants could not fail: without `-c` and `--rootdir`, pytest obeys them."""
    course = machine / "course"
    script = "python -m pytest --gpulab ../work/constant_memory.cu --gpulab-report=gradescope:results.json"
    (machine / "work" / "pytest.ini").write_text(f"[pytest]\naddopts = {OPTIONS.replace('-c pytest.ini', '')}\n")
    run(machine, ["bash", "-c", script], course)
    assert not (course / "results.json").exists()
    (machine / "mark").unlink(missing_ok=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_that_name_others_files_name_the_configuration(page: Path) -> None:
    given = [command.text for block in blocks(page, "console") for command in commands(block)]
    paths = [text for text in given if "pytest" in text and "--gpulab class" in text]
    assert all("-c /dev/null --rootdir=." in text for text in paths), paths
