"""The language of the package: things are named, and processes are no persons."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pytest_gpulab

pytestmark = pytest.mark.unit

PACKAGE = Path(pytest_gpulab.__file__).parent
FORBIDDEN = re.compile(r"\b(nobody|whoever|whose|(?:is|are) told|had better)\b", re.IGNORECASE)
RIDDLE = re.compile(r"(What|Who|Whether|Whose)\b")


def test_sentences_name_their_subjects() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.cuh")])
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_docstrings_say_what_a_thing_is() -> None:
    """Not with a free relative: "The outputs of a launch", not "What a launch has written"."""
    found = [
        f"{path.relative_to(PACKAGE)}: {docstring.splitlines()[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for docstring in _docstrings(path)
        if RIDDLE.match(docstring)
    ]
    assert found == []


def _docstrings(path: Path) -> list[str]:
    """Return the docstrings of a module, and of its variables, which are texts by themselves."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.value.value.strip()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
