"""Exercises of the usual kind are short: at most 40 lines after `ruff format`, with its own line length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks

from pytest_gpulab.exercise import Exercise

MAX_LINES = 40
SHOWN = ("stencil", "transpose", "histogram")
SHIPPED = sorted(
    path.parent.name for path in (ROOT / "exercises").glob("*/exercise.py") if "single_kernel(" in path.read_text()
)


def shown(name: str) -> str:
    """Return an exercise of authoring.md as a file of its own, with the page's imports."""
    pages = [
        block.text
        for block in blocks(ROOT / "docs" / "authoring.md", "python")
        if f"{name} = single_kernel(" in block.text
    ]
    (text,) = pages
    imports = blocks(ROOT / "docs" / "authoring.md", "python")[0].text.partition("\n\n\n")[0]
    text = text.partition("for exercise in")[0]
    return text if text.startswith(imports) else f"{imports}\n\n{text}"


def formatted(text: str) -> list[str]:
    command = [Path(sys.executable).with_name("ruff"), "format", "--isolated", "--quiet", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("name", SHOWN)
def test_an_exercise_on_the_page_is_short_and_complete(name: str) -> None:
    text = shown(name)
    lines = formatted(text)
    assert 10 < len(lines) <= MAX_LINES
    names: dict[str, object] = {}
    exec(compile(text, name, "exec"), names)
    exercise = names[name]
    assert isinstance(exercise, Exercise)
    assert len(exercise.cases) == 8 and len(exercise.speed) == 2 and len(exercise.uses) == 1
    assert {tier.baseline for tier in exercise.speed} == {"naive.cu"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_exercise_of_one_kernel_is_short(name: str) -> None:
    assert len(formatted((ROOT / "exercises" / name / "exercise.py").read_text())) <= MAX_LINES


def test_the_shipped_ones_are_those_that_the_page_names() -> None:
    page = (ROOT / "docs" / "authoring.md").read_text()
    assert len(SHIPPED) == 4 and all(f"../exercises/{name}/exercise.py" in page for name in SHIPPED)
