"""Hidden cases are marked wherever their texts get to, and told of only where no other case shows the same."""

from __future__ import annotations

from typing import Any

import pytest
from doubling import LANE, PLACE, Bench, codes, faulting, program, right

from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.exercise import Case

pytestmark = pytest.mark.unit

CASES = (Case("secret", 70, 25, hidden=True), Case("n=4", 4, 25))


def test_a_hidden_cases_check_is_marked(bench: Bench) -> None:
    results = bench.results(right(), cases=CASES)
    assert [name for name, result in results.items() if result.hidden] == ["correct[secret]"]


def test_hidden_cases_are_graded_after_the_others(bench: Bench) -> None:
    names = [name for name in bench.results(right(), cases=CASES) if name.startswith("correct")]
    assert names == ["correct[n=4]", "correct[secret]"]


def test_findings_that_depend_on_a_hidden_case_are_marked(bench: Bench) -> None:
    results = bench.results(wrong_above(4), cases=CASES)
    assert set(codes(results)) == {"correct[secret]", "speedup[1.5x]", "speedup[3x]"}
    (finding,) = results["speedup[3x]"].findings
    assert finding.hidden and finding.because == "correct[secret]"
    assert not results["speedup[3x]"].hidden


def test_a_case_that_is_not_hidden_is_blamed_first(bench: Bench) -> None:
    results = bench.results(wrong_above(0), cases=CASES)
    for name in ("safe[memory]", "speedup[3x]"):
        (finding,) = results[name].findings
        assert finding.because == "correct[n=4]" and not finding.hidden


def test_a_hazard_that_another_case_shows_too_says_nothing_of_the_hidden_one(bench: Bench) -> None:
    hazards = (Hazard("memory", "odd write", PLACE, LANE), Hazard("barrier", "odd barrier", PLACE, harmless=True))
    results = bench.results(right(hazards=hazards), cases=CASES)
    for name in ("safe[memory]", "safe[barrier]"):
        (finding,) = results[name].findings
        assert finding.evidence[-1] == "seen in correct[n=4] and 1 more" and not finding.hidden


def test_a_hazard_of_hidden_cases_alone_is_marked(bench: Bench) -> None:
    (finding,) = bench.result("safe[memory]", faulting("out-of-bounds", above=4), cases=CASES).findings
    assert finding.hidden and finding.evidence[-1] == "seen in correct[secret]"


def wrong_above(size: int) -> Any:
    """Return a kernel that is wrong for more elements than that."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = 2 * source.values + (n > size)

    return program(twice)
