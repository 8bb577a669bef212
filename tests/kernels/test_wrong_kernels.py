"""Every known-wrong kernel gets its stated verdict through the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import (
    EXERCISES,
    ROOT,
    WRONG,
    Graded,
    assert_verdicts,
    expectation_of,
    grade,
    is_wrong_only_while_timed,
    named,
)


@pytest.fixture(scope="module")
def wrong_kernels(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    return grade(ROOT / "tests" / "wrong", tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_kernel_gets_its_stated_verdict(wrong_kernels: Graded, path: Path) -> None:
    assert_verdicts(wrong_kernels.grades[path], path)


def test_a_kernel_can_be_fast_without_the_idea_and_then_fails_only_the_check_of_the_idea(wrong_kernels: Graded) -> None:
    (path,) = (path for path in WRONG if path.name == "fast_without_constant_memory.cu")
    checks = {check["name"]: check["verdict"] for check in wrong_kernels.grades[path]["checks"]}
    assert checks.pop("uses[constant-memory]") == "failed"
    assert checks.pop("speedup[2x]") == "passed"
    assert {verdict for name, verdict in checks.items() if not name.startswith("speedup")} == {"passed"}


def test_the_corpus_of_wrong_kernels_is_large_enough() -> None:
    assert len(WRONG) >= 32
    for name in EXERCISES:
        assert len([path for path in WRONG if path.parent.name == name]) >= 6, name
    assert len([path for path in WRONG if is_wrong_only_while_timed(path)]) >= 6


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_kernel_says_what_is_wrong_and_what_must_fail(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// Wrong: ")
    assert expectation_of(path).fails
