"""The simulator cross-check of a GPU; a fake device stands for the GPU, on which wrong kernels pass by luck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lucky_device import ALONE_VARIABLE, CANNOT_COUNT_VARIABLE
from remote_class import KERNEL, READS_BEYOND, Class

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.expected import Expectations
from pytest_gpulab.grading.grade import CheckResult, Finding
from pytest_gpulab.grading.isolation import cross_check, worker_process
from pytest_gpulab.grading.isolation.remote import RemoteGrader

ROOT = Path(__file__).resolve().parents[2]
INFO = DeviceInfo("cuda", "lucky GPU", "none", "sm_90", True)


pytestmark = pytest.mark.usefixtures("lucky")


@pytest.fixture
def bench(lucky: Class) -> Class:
    return lucky


def results(bench: Class, text: str) -> dict[str, CheckResult]:
    return {result.name: result for result in bench.grader(text).grade().checks}


def graded(path: Path, *names: str) -> Iterator[CheckResult]:
    """Grade checks of a submission in the repository, given by their names or kinds."""
    catalogue = Catalogue(ROOT / "exercises")
    name = catalogue.exercise_of(path)
    assert name is not None
    exercise = catalogue.load(name)
    with closing(RemoteGrader(exercise, path, "cuda", INFO, 20)) as grader:
        yield from (
            grader.run(check) for check in checks_of(exercise.exercise) if {check.name, check.kind} & set(names)
        )


WRONG = [
    "constant_memory/pitch_of_whole_tiles",
    "divergence/guard_off_by_one",
    "divergence/missing_barrier",
    "reduction/barrier_in_thread_loop",
    "reduction/reads_beyond_and_drops_it",
    "reduction/traps_at_one_size",
    "scan/missing_barrier",
    "scan/uninitialised_shared",
]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_gets_its_verdict_where_hardware_lets_it_pass(name: str) -> None:
    path = ROOT / "tests" / "wrong" / f"{name}.cu"
    expectation = Expectations.load([path.with_name("expected.toml")]).for_path(path)
    assert expectation is not None
    found = {result.name: result for result in graded(path, *expectation.fails)}
    for check, code in expectation.fails.items():
        assert found[check].verdict == "failed" and found[check].points == 0
        assert code in [finding.code for finding in found[check].findings], found[check]


@pytest.mark.parametrize("name", ["divergence/missing_barrier", "scan/uninitialised_shared"])
def test_the_lucky_device_alone_lets_them_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would show nothing."""
    monkeypatch.setenv(ALONE_VARIABLE, "1")
    found = graded(ROOT / "tests" / "wrong" / f"{name}.cu", "correct", "safe")
    assert {result.verdict for result in found} == {"passed"}


def test_a_right_kernel_keeps_all_its_points() -> None:
    found = list(graded(ROOT / "solutions" / "scan" / "06_single_pass.cu", "compile", "correct", "safe"))
    assert {result.kind for result in found if result.points == result.max_points} == {"compile", "correct", "safe"}
    assert all(result.points == result.max_points for result in found)
    assert all(not result.findings for result in found if result.kind == "safe")


USES = ("uses[conflict-free]", "uses[work-efficient]")


@pytest.mark.parametrize("name", ["03_blelloch", "05_warp_shuffle"])
def test_the_process_with_the_simulated_gpu_counts_what_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "solutions" / "scan" / f"{name}.cu"
    monkeypatch.setenv(CANNOT_COUNT_VARIABLE, "1")
    there = [(result.verdict, result.findings, result.points) for result in graded(path, *USES)]
    monkeypatch.delenv(CANNOT_COUNT_VARIABLE)
    monkeypatch.setenv(ALONE_VARIABLE, "1")
    here = [(result.verdict, result.findings, result.points) for result in graded(path, *USES)]
    assert there == here and len(here) == 2


def test_a_count_that_ran_out_of_the_time_beside_a_gpu_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = Catalogue(ROOT / "exercises").load("scan").exercise
    (check,) = (check for check in checks_of(exercise) if check.name == "uses[work-efficient]")
    late = check.result("failed", (Finding("time-limit", "The kernels took too long."),))
    wrong = check.result("failed", (Finding("concept", "Too much work."),))
    for answer, expected in ((late, None), (wrong, wrong)):
        monkeypatch.setattr(cross_check.CrossCheck, "_answer_to", lambda *_, answer=answer: answer)
        simulated = cross_check.CrossCheck(exercise, {"annotate": False}, worker_process.ProcessScope())
        assert simulated.count(check) == expected


def test_counters_of_a_wrong_kernel_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CANNOT_COUNT_VARIABLE, "1")
    wrong = ROOT / "tests" / "wrong" / "scan" / "missing_barrier.cu"
    for result in graded(wrong, *USES):
        assert result.points == 0 and result.findings[0].because.startswith("correct[")


def test_a_right_result_that_is_luck_fails_with_line_and_thread(bench: Class) -> None:
    found = results(bench, READS_BEYOND)
    assert {result.verdict for result in found.values()} == {"passed", "failed"}
    (finding,) = found["correct[n=31]"].findings
    assert (finding.code, finding.where) == ("out-of-bounds", "twice.cu:3")
    assert finding.evidence[0].startswith("first by block 0")
    assert finding.evidence[-1] == cross_check.LUCK
    (seen,) = found["safe[memory]"].findings
    assert (seen.code, seen.where, seen.evidence[-1]) == ("out-of-bounds", "twice.cu:3", cross_check.SEEN)


def test_a_safe_check_earns_nothing_if_all_results_are_luck(bench: Class) -> None:
    unset = KERNEL.replace("if (i < n)", "__shared__ int unset[32];\n    if (i < n)").replace(
        "2 * in[i]", "2 * in[i] + unset[threadIdx.x]"
    )
    found = results(bench, unset)
    assert {result.verdict for name, result in found.items() if name.startswith("correct[")} == {"failed"}
    safe = found["safe[memory]"]
    assert (safe.verdict, safe.points, safe.findings[0].because) == ("failed", 0.0, "correct[n=1]")


def test_a_result_by_luck_fails_the_speed_check_even_alone(bench: Class) -> None:
    with closing(bench.grader(READS_BEYOND)) as grader:
        result = grader.run(bench.checks["speedup[0.5x]"])
    assert (result.verdict, result.points, result.measurement) == ("failed", 0.0, None)
    assert result.findings[0].because == "correct[n=1]"


def test_a_race_in_a_large_launch_fails_the_speed_check_and_explains_wrong_outputs(bench: Class) -> None:
    exchange = "__shared__ int all[1024];\n    all[threadIdx.x] = n;\n    if (n < 1000) __syncwarp();\n"
    text = KERNEL.replace("if (i < n)", f"{exchange}    if (i < n && all[31 - threadIdx.x] >= 0)")
    found, check = results(bench, text), bench.checks["speedup[0.5x]"]
    assert [name for name, result in found.items() if result.verdict == "failed"] == [check.name]
    (finding,) = found[check.name].findings
    assert (finding.code, finding.where) == ("race", "twice.cu:6")
    assert finding.what.startswith("At size 2^12: potential read-after-write (RAW) hazard on __shared__ memory")
    wrong = Finding("wrong-result", "in a timed run")
    with closing(bench.grader(text)) as grader:
        assert grader._cross_check is not None
        assert grader._cross_check.combined_with(check.result("failed", (wrong,))).findings == (finding, wrong)


COUNTS_ITS_BLOCKS = """__device__ int started;
__global__ void twice(const int *in, int *out, int n) {
    __shared__ int all[32], number;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) number = atomicAdd(&started, 1);
    __syncthreads();
    all[threadIdx.x] = n;
    if (n < 1000 || number < 16) __syncthreads();
    if (i < n && all[31 - threadIdx.x] >= 0) out[i] = 2 * in[i];
}
"""
WAITS_FOR_EARLIER_BLOCKS = """__device__ int ended;
__global__ void twice(const int *in, int *out, int n) {
    __shared__ int all[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) while (*(volatile int *)&ended < blockIdx.x / 64 * 64) {}
    __syncthreads();
    all[threadIdx.x] = n;
    if (n < 1000 || blockIdx.x < 2) __syncthreads();
    if (i < n && all[31 - threadIdx.x] >= 0) out[i] = 2 * in[i];
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&ended, 1);
}
"""


@pytest.mark.parametrize("text", [COUNTS_ITS_BLOCKS, WAITS_FOR_EARLIER_BLOCKS])
def test_all_blocks_of_a_timed_launch_run_so_that_a_race_of_the_later_ones_is_found(bench: Class, text: str) -> None:
    found = results(bench, text)
    assert {name: result.findings[0].code for name, result in found.items() if result.verdict != "passed"} == {
        "speedup[0.5x]": "race"
    }


def test_an_access_beyond_an_array_at_the_timed_size_fails_although_hardware_lets_it_pass(bench: Class) -> None:
    found = results(
        bench, KERNEL.replace("if (i < n)", "if (n > 1000 && in[i + 1] == 1 << 30) return;\n    if (i < n)")
    )
    (result,) = (result for result in found.values() if result.verdict != "passed")
    assert (result.name, result.verdict, result.findings[0].code) == ("speedup[0.5x]", "failed", "out-of-bounds")


def test_a_race_check_of_the_timed_size_that_was_cut_short_does_not_pass(bench: Class) -> None:
    check = bench.checks["speedup[0.5x]"]
    short = check.result("not gradable", (Finding("not-checked", "The race check ran out of memory."),))
    with closing(bench.grader()) as grader:
        assert grader._cross_check is not None
        grader._cross_check._results[check.name] = short
        combined = grader._cross_check.combined_with
        assert combined(check.result("passed")) == short
        assert combined(check.result("missed")).verdict == "missed"


def test_a_fault_gets_its_name_and_place_and_keeps_what_the_gpu_said(bench: Class) -> None:
    trap = KERNEL.replace("if (i < n)", "if (n == 31) __trap();\n    if (i < n)")
    found = results(bench, trap)
    assert [name for name, result in found.items() if result.verdict == "failed"] == ["correct[n=31]", "speedup[0.5x]"]
    (finding,) = found["correct[n=31]"].findings
    assert (finding.code, finding.where) == ("trap", "twice.cu:3")
    assert "on the GPU: Twice: the GPU stopped the kernel" in finding.evidence


def test_an_access_beyond_the_stack_is_a_stack_overflow(bench: Class) -> None:
    """Hardware says that a thread accessed memory of no array: it does not know which function it called."""
    deep = "__device__ int deep(const int *in, int n) { return in[0] + deep(in, n + 1) * n; }\n"
    found = results(bench, deep + KERNEL.replace("if (i < n)", "if (n == 31 && deep(in, i)) return;\n    if (i < n)"))
    (finding,) = found["correct[n=31]"].findings
    assert (finding.code, finding.where) == ("stack-overflow", "twice.cu:1")
    assert "of `deep`" in finding.what
    assert "on the GPU: Twice: a thread accessed memory of no array" in finding.evidence


@pytest.mark.parametrize(
    ("verdict", "simulated_size", "which"),
    [("failed", None, "the same size"), ("missed", None, "the same size"), ("failed", 2048, "a smaller size")],
)
def test_a_fault_while_timing_is_located_on_the_simulated_gpu(
    bench: Class, verdict: Any, simulated_size: int | None, which: str
) -> None:
    file = bench.exercise.folder / "exercise.py"
    file.write_text(file.read_text().replace("30, 4096,", f"30, 4096, simulated_size={simulated_size},"))
    bench.exercise = Catalogue(bench.exercise.folder.parent).load("twice")
    bench.checks = {check.name: check for check in checks_of(bench.exercise.exercise)}
    told = f"at {which} on the simulated GPU: "
    trap = KERNEL.replace("if (i < n)", "if (n > 1000) __trap();\n    if (i < n)")
    for text, evidence, where in (
        (trap, f"{told}twice.cu:3: The kernel stopped itself with __trap(), first by block 0 thread 0", "twice.cu:3"),
        (KERNEL, f"{told}the kernel ends normally", ""),
    ):
        with closing(bench.grader(text)) as grader:
            stopped = bench.checks["speedup[0.5x]"].result(verdict, (Finding("device-fault", "given up"),))
            assert grader._cross_check is not None
            (found,) = grader._cross_check.combined_with(stopped).findings
        assert (found.code, found.what, found.evidence, found.where) == ("device-fault", "given up", (evidence,), where)


def test_a_fault_stays_as_it_is_without_a_simulated_gpu(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALONE_VARIABLE, "1")
    with closing(bench.grader()) as grader:
        stopped = bench.checks["speedup[0.5x]"].result("failed", (Finding("device-fault", "given up"),))
        assert grader._cross_check is not None and grader._cross_check.combined_with(stopped) == stopped


def test_a_wrong_result_is_not_replaced_by_the_cross_check(bench: Class) -> None:
    (finding,) = results(bench, KERNEL.replace("2 *", "3 *"))["correct[n=31]"].findings
    assert finding.code == "wrong-result"
    assert finding.evidence[-1].startswith("the same case on the simulated GPU: `out`: ")
    assert finding.smallest is not None
    assert finding.smallest.what == "n = 1, in = [1]: out should be [2], is [3]"
