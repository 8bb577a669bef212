"""The corpus of wrong kernels; `test_wrong_reduction` and the others grade it."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import EXERCISES, WRONG, expectation_of, is_wrong_only_while_timed, named

pytestmark = pytest.mark.unit


def test_the_corpus_of_wrong_kernels_is_large_enough() -> None:
    assert len(WRONG) >= 32
    for name in EXERCISES:
        assert len([path for path in WRONG if path.parent.name == name]) >= 6, name
    assert len([path for path in WRONG if is_wrong_only_while_timed(path)]) >= 6


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_kernel_says_what_is_wrong_and_what_must_fail(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// Wrong: ")
    assert expectation_of(path).fails
