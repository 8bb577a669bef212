"""Every known-wrong kernel of constant_memory gets its stated verdict through the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import Graded, assert_verdicts, graded_wrong, named, wrong_of

wrong_kernels = graded_wrong("constant_memory", in_full="fast_without_constant_memory")


@pytest.mark.parametrize("path", wrong_of("constant_memory"), ids=named)
def test_a_wrong_kernel_gets_its_stated_verdict(wrong_kernels: Graded, path: Path) -> None:
    assert_verdicts(wrong_kernels.grades[path], path)


def test_a_kernel_can_be_fast_without_the_idea_and_then_fails_only_the_check_of_the_idea(wrong_kernels: Graded) -> None:
    (path,) = (path for path in wrong_of("constant_memory") if path.name == "fast_without_constant_memory.cu")
    checks = {check["name"]: check["verdict"] for check in wrong_kernels.grades[path]["checks"]}
    assert checks.pop("uses[constant-memory]") == "failed"
    assert checks.pop("speedup[2x]") == "passed"
    assert {verdict for name, verdict in checks.items() if not name.startswith("speedup")} == {"passed"}


def test_terms_that_are_compared_are_recognised(wrong_kernels: Graded) -> None:
    (path,) = (path for path in wrong_of("constant_memory") if path.name == "largest_term.cu")
    checks = {check["name"]: check for check in wrong_kernels.grades[path]["checks"]}
    (found,) = checks["correct[97x61]"]["findings"]
    assert "each of them is the largest of the terms" in found["evidence"]
