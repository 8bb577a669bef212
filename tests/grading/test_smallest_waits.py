"""The smallest failing inputs of kernels in which threads wait for ever: each trial is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.correctness.trials import Trials
from pytest_gpulab.grading.grader import Grader

ROOT = Path(__file__).resolve().parents[2]


def test_sizes_below_one_that_passes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    run = Trials.run
    monkeypatch.setattr(Trials, "run", lambda *args: tried.append(args[2].size) or run(*args))
    loaded = Catalogue(ROOT / "exercises").load("scan")
    path = ROOT / "tests/wrong/scan/endless_look_back.cu"
    grader = Grader(loaded, path, open_device("sim")[0], 20)
    for check in checks_of(loaded.exercise):
        if check.kind == "correct" and grader.run(check).verdict == "failed":
            break
    assert check.name == "correct[n=10007]"
    assert tried and min(tried) > 4097  # the largest case before
