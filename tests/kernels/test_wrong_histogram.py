"""Every known-wrong kernel of histogram gets its stated verdict through the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import Graded, assert_verdicts, graded_wrong, named, wrong_of

wrong_kernels = graded_wrong("histogram")


@pytest.mark.parametrize("path", wrong_of("histogram"), ids=named)
def test_a_wrong_kernel_gets_its_stated_verdict(wrong_kernels: Graded, path: Path) -> None:
    assert_verdicts(wrong_kernels.grades[path], path)
