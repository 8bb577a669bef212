"""Safe checks: hazards and faults of all runs, with line, block and thread."""

from pathlib import Path
from typing import Any, Literal

import pytest
from doubling import EXERCISE, LANE, PLACE, Bench, codes, faulting, program, right

from pytest_gpulab.devices.protocol import Access, DeviceUnavailable, Hazard, KernelFault, Lane, SourceLine
from pytest_gpulab.exercise import Case, SafeCheck, Variant

pytestmark = pytest.mark.unit


def test_a_hazard_fails_its_check_although_the_results_are_right(bench: Bench) -> None:
    hazard = Hazard("barrier", "divergent barrier", PLACE, LANE)
    results = bench.results(right(hazards=(hazard,)))
    assert codes(results) == {"safe[barrier]": "barrier"}
    (finding,) = results["safe[barrier]"].findings
    assert (finding.what, finding.where) == ("Divergent barrier", "student.cu:5")
    assert finding.evidence == ("first by block 0 thread 32", "seen in correct[n=4], correct[n=70]")
    assert "same __syncthreads()" in finding.hint


@pytest.mark.parametrize("kind", ["race", "uninitialised"])
def test_races_and_uninitialised_reads_fail_checks_of_their_own(
    bench: Bench, kind: Literal["race", "uninitialised"]
) -> None:
    met = Access("write of 4 bytes", SourceLine("student.cu", 3), Lane((0, 0, 0), (1, 0, 0)))
    hazards = (Hazard(kind, "it happened", PLACE, LANE, other=met), Hazard(kind, "it may be", harmless=True))
    safe = (SafeCheck("memory", 3), SafeCheck("barrier", 3), SafeCheck(kind, 4))
    results = bench.results(right(hazards=hazards), safe=safe)
    assert codes(results) == {f"safe[{kind}]": kind}
    (finding,) = results[f"safe[{kind}]"].findings
    assert finding.where == "student.cu:5"
    party = "block 0 thread 32, against the write of 4 bytes by block 0 thread 1 at student.cu:3"
    assert finding.evidence[0] == f"first by {party}"


def test_a_write_into_a_guard_zone_is_out_of_bounds(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = 2 * source.values
        out.report = "4 bytes written after the end"

    results = bench.results(program(twice), speed=(), compile_points=40)
    assert codes(results) == {"safe[memory]": "out-of-bounds"}
    (finding,) = results["safe[memory]"].findings
    assert finding.what == "4 bytes written after the end of out"
    assert finding.evidence == ("seen in correct[n=4], correct[n=70]",)


@pytest.mark.parametrize(
    ("code", "check"),
    [
        ("out-of-bounds", "memory"),
        ("misaligned", "memory"),
        ("stack-overflow", "memory"),
        ("deadlock", "barrier"),
        ("barrier", "barrier"),
    ],
)
def test_a_fault_of_the_kind_fails_the_check_even_if_one_case_has_it(bench: Bench, code: str, check: str) -> None:
    results = bench.results(faulting(code, above=4))
    other = {"memory": "barrier", "barrier": "memory"}[check]
    assert results["correct[n=4]"].verdict == "passed"
    assert results[f"safe[{check}]"].findings[0].code == code
    assert results[f"safe[{check}]"].findings[0].evidence == ("first by block 0 thread 32", "seen in correct[n=70]")
    assert results[f"safe[{other}]"].verdict == "passed"


def test_doing_nothing_right_is_not_safe(bench: Bench) -> None:
    results = bench.results(program(lambda options, *args: None))
    assert codes(results) == {name: "not-written" for name in results if name != "compile"}
    (finding,) = results["safe[memory]"].findings
    assert finding.what == ("Not graded, because `correct[n=4]` did not pass: `out`: all 4 elements are never written.")
    assert finding.because == "correct[n=4]"


def test_one_line_is_one_finding_however_its_addresses_differ(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        raise KernelFault("out-of-bounds", f"read past the end of {n} elements", PLACE)

    (finding,) = bench.result("safe[memory]", program(twice)).findings
    assert finding.what == "Read past the end of 4 elements"
    assert finding.evidence == ("seen in correct[n=4], correct[n=70]",)


def test_many_places_are_cut_short_and_many_checks_are_counted(bench: Bench) -> None:
    hazards = tuple(Hazard("memory", "odd write", SourceLine("student.cu", line)) for line in range(9))
    cases = tuple(Case(f"n={n}", n, 10) for n in range(1, 6))
    result = bench.result("safe[memory]", right(hazards=hazards), cases=cases)
    assert [finding.where for finding in result.findings] == [f"student.cu:{line}" for line in range(5)]
    assert result.findings[0].evidence == ("seen in correct[n=1], correct[n=2], correct[n=3] and 2 more",)


def test_an_incomplete_race_check_does_not_pass_and_names_the_unchecked_accesses(bench: Bench) -> None:
    safe = (SafeCheck("memory", 4), SafeCheck("race", 6))
    results = bench.results(right(unchecked=("some accesses",)), safe=safe)
    assert (results["safe[memory]"].verdict, results["safe[race]"].verdict) == ("passed", "not gradable")
    (finding,) = results["safe[race]"].findings
    assert results["safe[race]"].points == 0
    assert finding.code == "not-checked"
    assert finding.what == "The race check ran out of memory: it skipped some accesses."
    assert finding.evidence == ("seen in correct[n=4], correct[n=70]",)
    assert finding.hint.startswith("The rest has no race.")


def test_a_race_that_was_found_counts_although_the_check_was_cut_short(bench: Bench) -> None:
    profile = right(hazards=(Hazard("race", "it happened", PLACE, LANE),), unchecked=("some accesses",))
    result = bench.results(profile, safe=(SafeCheck("race", 10),))["safe[race]"]
    assert (result.verdict, [finding.code for finding in result.findings]) == ("failed", ["race"])


@pytest.mark.parametrize("later", ["a build", "a launch"])
def test_a_fault_that_breaks_a_gpu_is_the_kernels_also_for_cases_after_it(tmp_path: Path, later: str) -> None:
    """Such a fault may come by chance: `correct[n=4]` may have passed in another process."""
    bench = Bench(tmp_path, estimates=False)
    broken = DeviceUnavailable("the GPU cannot be used any more in this process")

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == 70:
            raise broken
        if later == "a build":
            submission.error = broken
        raise KernelFault("device-fault", "the GPU stopped the kernel")

    submission = program(twice)
    other = Variant("other", {"GPULAB_T": "float"})
    case = Case("n=70", 70, 25, variant=other) if later == "a build" else Case("n=70", 70, 25)
    result = bench.result("safe[memory]", submission, cases=(EXERCISE.cases[0], case))
    assert result.verdict == "failed"
    assert [(found.code, found.because) for found in result.findings] == [("device-fault", "correct[n=4]")]
