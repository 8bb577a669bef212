"""The findings of `correct[...]` for kernels that fault, hang or are refused, and for what they print."""

from pathlib import Path
from typing import Any

import pytest
from doubling import Bench, codes, kernel, program, right
from test_cases import only_correct

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault, Lane, LaunchError, SourceLine
from pytest_gpulab.grading.time_limits import CASE_S, LATER_CASE_S

pytestmark = pytest.mark.unit


LANE = Lane((2, 0, 0), (1, 3, 0), axes=(1, 2))
PLACE = SourceLine("student.cu", 9)


@pytest.mark.parametrize(
    "code",
    ["out-of-bounds", "misaligned", "stack-overflow", "endless-loop", "deadlock", "block-order", "assert", "trap"],
)
def test_a_fault_is_named_with_its_line_and_thread(bench: Bench, code: str) -> None:
    def twice(options: Any, *args: Any) -> None:
        raise KernelFault(code, "something happened", PLACE, LANE, "said before\n")

    result = only_correct(bench, program(twice))["correct[n=4]"]
    (finding,) = result.findings
    assert (result.verdict, finding.code, finding.what) == ("failed", code, "Something happened")
    assert finding.where == "student.cu:9"
    assert finding.evidence == ("first by block (y=0, x=2) thread (y=3, x=1)", "input pattern: random")
    assert finding.hint
    assert result.printed == "said before\n"


def test_the_time_limit_is_shorter_after_a_case_that_hung(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == 4:
            raise KernelFault("time-limit", "the kernel does not end")
        return kernel()(options, source, out, n)

    results = only_correct(bench, program(twice))
    assert codes(results) == {"correct[n=4]": "time-limit"}
    first, *others = [options.time_limit_s for _, options in bench.device.launches]
    assert CASE_S - 1 < first <= CASE_S
    assert len(others) > 4 and max(others) <= LATER_CASE_S


def test_a_real_gpu_that_a_fault_took_down_shows_the_fault_at_the_first_case(tmp_path: Path) -> None:
    def twice(options: Any, *args: Any) -> None:
        bench.device.broken = True
        raise KernelFault("device-fault", "an illegal address was encountered", PLACE, LANE)

    bench = Bench(tmp_path, estimates=False)
    result = bench.result("correct[n=70]", program(twice))
    assert (result.verdict, result.findings[0].code) == ("failed", "device-fault")
    assert len(bench.device.launches) == 1


def test_a_fault_may_have_no_place(bench: Bench) -> None:
    def twice(options: Any, *args: Any) -> None:
        raise KernelFault("device-fault", "an illegal address was encountered")

    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert (finding.where, finding.evidence) == ("", ("input pattern: random",))
    assert "indices and pointers" in finding.hint


def test_a_refused_launch(bench: Bench) -> None:
    def twice(options: Any, *args: Any) -> None:
        raise LaunchError("too much shared memory")

    result = only_correct(bench, program(twice))["correct[n=4]"]
    assert (result.verdict, result.findings[0].code) == ("failed", "launch-error")
    assert result.findings[0].what == "The launch was refused: too much shared memory"
    assert "block size" in result.findings[0].hint


def test_an_unsimulated_instruction_makes_the_case_and_dependent_checks_not_gradable(
    bench: Bench,
) -> None:
    def twice(options: Any, *args: Any) -> None:
        raise CannotSimulate("a call through a pointer", PLACE)

    results = bench.results(program(twice))
    assert results.pop("compile").verdict == "passed"
    assert {result.verdict for result in results.values()} == {"not gradable"}
    assert set(codes(results).values()) == {"cannot-simulate"}


def test_printed_output_is_kept_once_and_capped(bench: Bench) -> None:
    assert only_correct(bench, right(output="hello\n"))["correct[n=4]"].printed == "hello\n"
    long = only_correct(bench, right(output="x" * 5000))["correct[n=70]"].printed
    assert long == "x" * 4000 + "\n... and 1000 more characters"
