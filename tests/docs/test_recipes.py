"""The recipes for autograders, on a submission with configuration and code beside it: none of it is obeyed or run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, blocks, commands
from hang_guard import HANG_S

sys.path += [str(Path(__file__).parents[1] / name) for name in ("course", "plugin")]
from course import EXERCISE, NAIVE, WRONG
from test_planted import EVIL, MARK, OPTIONS, PLANTS

PAGE = ROOT / "docs" / "gradebooks.md"
FORGED = {"pytest.ini": "[pytest]\naddopts = -p no:gpulab\n", "conftest.py": EVIL, "result.json": '{"score": 100}'}
BESIDE = {**PLANTS, **FORGED}
POINTS = 30  # of 100: WRONG is right for the smallest case only


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A root with the folders of all platforms: the course, and a wrong submission with everything beside it."""
    for course in ("autograder/source", "grade/tests", "course"):
        for name, text in (("exercise.py", EXERCISE), ("naive.cu", NAIVE)):
            write(tmp_path / course / "exercises" / "constant_memory" / name, text)
    for submission in ("autograder/submission", "grade/student", "work"):
        for name, text in {**BESIDE, "constant_memory.cu": WRONG}.items():
            write(tmp_path / submission / name, text)
    (tmp_path / "autograder" / "results").mkdir()
    yield tmp_path
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(machine: Path, command: list[str], folder: Path, **variables: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = "--gpulab-device=sim -p no:hypothesispytest -p no:benchmark"
    environment |= {"PATH": path, "PYTEST_ADDOPTS": options, MARK: str(machine / "mark"), **variables}
    subprocess.run(command, cwd=folder, env=environment, timeout=HANG_S, check=False, capture_output=True)


def recipe(word: str) -> str:
    (text,) = [block.text for block in blocks(PAGE, "bash") if word in block.text]
    return text.replace("python3", "python")


def gradescope(machine: Path) -> float:
    script = recipe("/autograder/").replace("/autograder/", f"{machine}/autograder/")
    run(machine, ["bash", "-c", script], machine)
    return float(json.loads((machine / "autograder" / "results" / "results.json").read_text())["score"])


def prairielearn(machine: Path) -> float:
    run(machine, ["bash", "-c", recipe("/grade/").replace("/grade/", f"{machine}/grade/")], machine)
    return 100 * float(json.loads((machine / "grade" / "results" / "results.json").read_text())["score"])


def classroom50(machine: Path) -> float:
    (program,) = [block for block in blocks(PAGE) if block.file == "autograder.py"]
    write(machine / "course" / "autograder.py", program.text)
    told = dict.fromkeys(("CLASSROOM", "ASSIGNMENT", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL"), "x")
    run(machine, [sys.executable, str(machine / "course" / "autograder.py")], machine / "work", **told)
    return float(json.loads((machine / "work" / "result.json").read_text())["score"])


@pytest.mark.parametrize("platform", [gradescope, prairielearn, classroom50], ids=lambda platform: platform.__name__)
def test_no_file_beside_a_submission_is_executed_or_read_as_configuration(
    machine: Path, platform: Callable[[Path], float]
) -> None:
    assert platform(machine) == POINTS


def test_the_plants_bite_without_the_recipes_options(machine: Path) -> None:
    """Otherwise the tests above could not fail: a recipe that names neither configuration nor rootdir is betrayed."""
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
