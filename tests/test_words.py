"""The language of the package and its pages: things are named, and processes are no persons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import pytest_gpulab

pytestmark = [pytest.mark.unit, pytest.mark.unmeasured]

PACKAGE = Path(pytest_gpulab.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
SOURCES = [  # an installed package has its own copy of the exercises
    *sorted(path for suffix in ("py", "cuh", "jinja") for path in PACKAGE.rglob(f"*.{suffix}")),
    *sorted(ROOT.glob("exercises/*/*.py")),
]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("exercises/*/README.md"))]
KERNELS = [*sorted(ROOT.glob("exercises/*/*.cu*")), *sorted(ROOT.glob("solutions/*/*.cu"))]

PERSONS = r"nobody|whoever|(?:is|are|was|were) told|he|she|him|her|hers|his|gives? way|lets? go of|comes? to it"
RIDDLES = r"had better|(?:is|are) at it|(?:is|are|was|were) (?:held )?to be\b|held (?:to|against)"
FORBIDDEN = re.compile(rf"\b(?:{PERSONS}|{RIDDLES})\b", re.IGNORECASE)
WHOSE = re.compile(r"\bwhose\b", re.IGNORECASE)
PER = re.compile(r"\d (?:\w+ )?an? (?:warp|thread|block|launch|request|minute|second|hour|element|step)\b")
FRAGMENT = re.compile(r"^ *[a-z_]\w*(?:, \w+)*: (?:of |see (?:above|there)\b|tells? ).*", re.MULTILINE)
RIDDLE = re.compile(r"(What|Who|Whether|Whose)\b")
UNCLEAR_TEST_NAME = re.compile(r"def (test_(?:(?:what|who|whose|whether|unless)_\w+|\w*(?:nobody|_told\b|_told_)\w*))")


def test_sentences_name_their_subjects() -> None:
    assert list(_lines_with(FORBIDDEN, [*SOURCES, *PAGES, *KERNELS])) == []
    assert list(_lines_with(WHOSE, SOURCES)) == []


def test_rates_are_per_something() -> None:
    """Not "9 barriers a warp"."""
    assert list(_lines_with(PER, [*SOURCES, *PAGES, *KERNELS])) == []


def test_docstrings_say_what_a_thing_is() -> None:
    """Not with a free relative: "The outputs of a launch", not "What a launch has written"."""
    found = [
        f"{path.relative_to(PACKAGE)}: {docstring.splitlines()[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for docstring in _written(path).docstrings
        if RIDDLE.match(docstring)
    ]
    assert found == []


def test_entries_of_docstrings_are_noun_phrases() -> None:
    """Not "seed: of all input data": the entry says what the parameter is."""
    found = [
        f"{path.relative_to(PACKAGE)}: {fragment.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for docstring in _written(path).docstrings
        for fragment in FRAGMENT.findall(docstring)
    ]
    assert found == []


def test_names_of_tests_say_what_is_tested() -> None:
    """Not "test_who_hung_once_may_hang_less_long": the name says the behaviour."""
    tests = [path for path in sorted(ROOT.glob("tests/**/*.py")) if path != Path(__file__)]
    assert list(_lines_with(UNCLEAR_TEST_NAME, tests)) == []


def test_a_class_is_not_described_by_its_own_name() -> None:
    """Not `class SmLimits: "SmLimits of one SM."`: a name of two words says nothing in a sentence."""
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, docstring in _written(path).classes
        if re.search("[a-z][A-Z]", name) and docstring.startswith(name)
    ]
    assert found == []


def _lines_with(words: re.Pattern[str], paths: list[Path]) -> Iterator[str]:
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for found in words.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"


class Written(NamedTuple):
    """The docstrings of a module, also of its variables, which are texts by themselves; its classes with theirs."""

    docstrings: list[str]
    classes: list[tuple[str, str]]


@cache
def _written(path: Path) -> Written:
    """Return what a module says, from one walk for all tests."""
    found = Written([], [])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found.classes.append((node.name, ast.get_docstring(node) or ""))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.docstrings.append(node.value.value.strip())
    return found
