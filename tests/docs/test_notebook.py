"""The notebook of the documentation runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from doc_pages import ROOT
from hang_guard import HANG_S
from nbclient import NotebookClient


@pytest.fixture
def course(tmp_path: Path) -> Path:
    name = "constant_memory"
    shutil.copytree(ROOT / "exercises" / name, tmp_path / "exercises" / name)
    return tmp_path


def run(notebook: Any, folder: Path) -> list[str]:
    """Run a notebook; return the HTML, or the text, that each code cell shows."""
    client = NotebookClient(notebook, timeout=HANG_S, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return ["\n".join(map(_shown, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(output: Any) -> str:
    data = output.get("data", {})
    return str(data.get("text/html") or data.get("text/plain") or output.get("text", ""))


def test_the_notebook_runs(course: Path) -> None:
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    assert [cell for cell in notebook.cells if cell.get("outputs")] == [], "it is kept without outputs"
    loaded, compiled, device, launched, graded = run(notebook, course)
    assert loaded == compiled == ""
    assert "<caption>simulated GPU" in device
    assert "[ 0  2  4  6  8 10 12 14]" in launched and "<caption>twice</caption>" in launched
    assert "estimated time, ms" in launched and "limited by" in launched
    assert "constant_memory: 65 of 100 points" in graded and "concept: " in graded


def test_mistakes_are_shown_beside_the_cell(course: Path) -> None:
    cells = [
        "%load_ext pytest_gpulab",
        "%%gpulab scan\nx",
        "%%gpulab\nx",
        "%%gpulab scan --exercises no\nx",
        "%%cuda k --device sim\n__global__ void k() { <b> }",
    ]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    _, unknown, nameless, missing, broken = run(made, course)
    assert "There is no exercise scan in exercises: constant_memory." in unknown
    assert "the following arguments are required: name" in nameless and "To exit" not in nameless
    assert "in no: it has none; `gpulab course DIR` writes a folder with them." in missing
    assert "k.cu(1): error" in broken and "<b>" not in broken
