"""The shipped exercise that asks for a program: solutions, honest variants and wrong programs get their verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import ON_SIMULATED, ROOT, Graded, assert_points, assert_verdicts, expectation_of, grade, named

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of

pytestmark = [pytest.mark.e2e, pytest.mark.unmeasured]
ENABLED = (*ON_SIMULATED, "--gpulab-programs")
SOLUTIONS, HONEST, WRONG = (
    sorted(ROOT.glob(f"{folder}/reduction_host/*.cu")) for folder in ("solutions", "tests/honest", "tests/wrong")
)


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    return grade(ROOT / "solutions" / "reduction_host", tmp_path_factory.mktemp("solutions"), *ENABLED)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    return grade(ROOT / "tests" / "honest" / "reduction_host", tmp_path_factory.mktemp("honest"), *ENABLED)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    """Grade the checks with a stated verdict; programs that never end in a run of their own, with a short limit."""
    folder, scratch = ROOT / "tests" / "wrong" / "reduction_host", tmp_path_factory.mktemp("wrong")
    endless = [path for path in WRONG if "time-limit" in expectation_of(path).fails.values()]
    others = grade(folder, scratch, *ENABLED, checks=stated([path for path in WRONG if path not in endless]))
    stopped = grade(folder, scratch, *ENABLED, "-ptests.short_program_limits", checks=stated(endless))
    return Graded(others.exit_code, others.output, {**others.grades, **stopped.grades})


def stated(paths: list[Path]) -> list[str]:
    """Return the node ids of `compile` and of the checks that must fail: a failure of one costs its points."""
    checks = [check.name for check in checks_of(Catalogue(ROOT / "exercises").load("reduction_host").exercise)]
    return [f"{path}::{name}" for path in paths for name in checks if name in ("compile", *expectation_of(path).fails)]


def test_all_solutions_pass_as_expected(solutions: Graded) -> None:
    assert solutions.exit_code == 0, solutions.output
    assert "There is output of" not in solutions.output, "a right answer is no news"


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_earns_its_stated_points(solutions: Graded, path: Path) -> None:
    assert_points(solutions.grades[path], path)


@pytest.mark.parametrize("path", HONEST, ids=named)
def test_an_honest_program_earns_all_points(honest: Graded, path: Path) -> None:
    found = honest.grades[path]
    assert [check for check in found["checks"] if check["verdict"] != "passed"] == []
    assert found["points"] == 100


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_program_gets_its_stated_verdict(wrong: Graded, path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// Wrong: ")
    assert_verdicts(wrong.grades[path], path)
    assert wrong.grades[path]["points"] < 100


def test_findings_name_the_line_of_the_program(wrong: Graded) -> None:
    (path,) = (path for path in WRONG if path.name == "leak.cu")
    (found,) = (check["findings"][0] for check in wrong.grades[path]["checks"] if check["name"] == "safe[leak]")
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "cudaMalloc(&in" in text)
    assert found["where"] == f"leak.cu:{line}"  # one launch swaps the buffers
    assert found["line"] == "cudaMalloc(&in, n * sizeof(int));"


def test_findings_on_given_kernels_name_the_line_of_the_header(wrong: Graded) -> None:
    (path,) = (path for path in WRONG if path.name == "in_place.cu")
    (found,) = (check["findings"][0] for check in wrong.grades[path]["checks"] if check["name"] == "safe[race]")
    assert found["where"].startswith("reduce.cuh:")
    assert found["line"]


def test_the_corpus_is_large_enough() -> None:
    assert len(WRONG) >= 20 and len(HONEST) >= 6
    assert all(expectation_of(path).points is not None for path in SOLUTIONS)
