"""Grading kernels that are really compiled and run, on the simulated GPU."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from block_sums import EXERCISE, NAIVE, TREE, changed, graded, line_of
from doubling import codes

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.correctness.checked_launches import ReplayInput, races

pytestmark = pytest.mark.unmeasured


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


def test_a_good_kernel_earns_everything_but_the_unreachable_bonus(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, TREE)
    assert codes(results) == {"speedup[1000x int32]": "too-slow"}
    assert sum(result.points for result in results.values()) == 80
    measured = results["speedup[1.2x int32]"].measurement
    assert measured is not None and measured.estimated and measured.speedup > 1.2
    assert measured.registers and measured.occupancy and measured.bandwidth_gb_s
    assert measured.reference_ms is not None and measured.reference_ms > 0
    (kernel,) = measured.kernels
    assert (kernel.registers, kernel.occupancy) == (measured.registers, measured.occupancy)
    assert kernel.achieved is not None and 0 < kernel.achieved <= kernel.occupancy


def test_the_naive_kernel_handed_in_earns_its_correctness_and_no_speed(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, NAIVE)
    assert codes(results) == {"speedup[1.2x int32]": "too-slow", "speedup[1000x int32]": "too-slow"}
    measured = results["speedup[1.2x int32]"].measurement
    assert measured is not None and measured.speedup == 1
    assert [results[name].verdict for name in codes(results)] == ["failed", "missed"]


def test_a_speedup_from_sampled_blocks_says_how_far_it_may_err(gpu: Device, tmp_path: Path) -> None:
    rounds = "float a = 0; for (unsigned k = blockIdx.x * 2654435761u >> 24; k > 0; k--) a = a * 0.5f + k;"
    source = changed(TREE, "__syncthreads();\n    for", f"{rounds} if (a < 0) out[0] = 0; __syncthreads();\n    for")
    big = replace(EXERCISE, speed=tuple(replace(tier, simulated_size=2**17) for tier in EXERCISE.speed))
    result = graded(tmp_path, gpu, source, big)["speedup[1000x int32]"]
    assert result.measurement is not None and result.measurement.sampling_error_pct is not None
    assert 1 < result.measurement.sampling_error_pct < 30
    said = f"with a standard error of {result.measurement.sampling_error_pct:.1f} %"
    assert result.findings[0].evidence[1] == f"estimated from a sample of the blocks, {said}"


@pytest.mark.parametrize("last", [5000, 9])
def test_a_barrier_left_out_in_a_later_large_launch_is_a_race(gpu: Device, last: int) -> None:
    """The later launch may fault instead, because most blocks of the first one did not run."""
    source = """
    __global__ void f(const int *in, int *out, int n) {
        __shared__ int part[64];
        part[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
        if (n < 1000) __syncthreads();
        out[blockIdx.x * 64 + threadIdx.x] = part[63 - threadIdx.x];
        if (n == 9) __trap();
    }"""
    buffers = [
        Buffer(name, role, np.int32, (640,)) for name, role in (("a", "input"), ("b", "scratch"), ("c", "output"))
    ]
    args = ("a", "b", np.int32(7)), ("b", "c", np.int32(last))
    plan = Plan(buffers, [Launch("f", (10,), (64,), each) for each in args])
    build = SimpleNamespace(module=gpu.compile(source), scene=None)
    found = races(ReplayInput(gpu, build, plan, {"a": np.ones(640, np.int32)}), seed=1)
    assert {finding.code for finding in found} == ({"race"} if last == 5000 else set())


@pytest.mark.parametrize("linkage", ["", 'extern "C" '])
def test_a_function_that_is_defined_nowhere_is_no_matter_of_the_device(
    gpu: Device, tmp_path: Path, linkage: str
) -> None:
    source = f"{linkage}__device__ int weighed(int);\n{TREE}"
    source = changed(source, "out[blockIdx.x] = weight * tile[0];", "out[blockIdx.x] = weighed(tile[0]);")
    results = graded(tmp_path, gpu, source)
    assert {result.verdict for result in results.values()} == {"failed"}
    (finding,) = results["compile"].findings
    assert finding.where == line_of(source, "weighed(tile")
    assert "the function `weighed` is called, but not defined" in finding.what
    assert finding.hint == "The grader compiles this file alone: define the function in it, marked `__device__`."


def test_a_compile_error_has_the_compilers_words_and_the_students_line(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "out[blockIdx.x] = weight * tile[0];", "out[blockIdx.x] = wait * tile[0];")
    results = graded(tmp_path, gpu, source)
    assert set(codes(results).values()) == {"compile-error"} and len(codes(results)) == len(results)
    (finding,) = results["compile"].findings
    assert finding.where == line_of(source, "wait")
    assert 'identifier "wait" is undefined' in finding.what
    assert any("wait" in line for line in finding.evidence)


def test_host_code_is_not_used(gpu: Device, tmp_path: Path) -> None:
    program = "#include <vector>\nint helper() { return std::vector<int>(3).size(); }\n"
    assert graded(tmp_path, gpu, TREE + program + "int main() { return helper(); }\n")["compile"].verdict == "passed"
    source = changed(TREE + program, "out[blockIdx.x] = weight * tile[0];", "out[blockIdx.x] = helper() * tile[0];")
    (finding,) = graded(tmp_path, gpu, source)["compile"].findings
    assert finding.code == "host-code-used" and finding.where == line_of(source, "helper() * tile")
    line = line_of(source, "int helper()").rpartition(":")[2]
    assert finding.what == f"Device code uses `helper` (line {line}), which is host code."


@pytest.mark.parametrize(
    ("old", "new", "code", "what"),
    [
        ("__global__ void", "__device__ void", "missing-kernel", "`block_sums` (line 5) is not a kernel:"),
        (", unsigned n)", ", unsigned n, int more)", "wrong-signature", "has 4 parameters, but it is called with 3."),
        (
            ", unsigned n)",
            ", size_t n)",
            "wrong-signature",
            "Parameter 3 (`n`) of `block_sums` is `unsigned long`, but the grader passes `unsigned int`.",
        ),
        (
            "__constant__ GPULAB_T weight",
            "__constant__ GPULAB_T heavy, *weigh",
            "compile-error",
            '"weight" is undefined',
        ),
        (
            "GPULAB_T weight;",
            "char weight;",
            "wrong-signature",
            "`weight` holds 1 bytes, but the grader copies 4 bytes",
        ),
        (
            "GPULAB_TUNABLE(BLOCK_SIZE, 128)",
            "namespace sizes { const int BLOCK_SIZE = 128; }\nusing namespace sizes;",
            "tunable-missing",
            "does not declare the tunable BLOCK_SIZE",
        ),
        ("(BLOCK_SIZE, 128)", "(BLOCK_SIZE, 96)", "tunable-range", "The tunable BLOCK_SIZE is 96"),
        (
            "__constant__",
            "GPULAB_TODO(block_sums)\n__constant__",
            "not-started",
            "`block_sums` still has its GPULAB_TODO line.",
        ),
    ],
)
def test_errors_before_a_launch_are_found(
    gpu: Device, tmp_path: Path, old: str, new: str, code: str, what: str
) -> None:
    results = graded(tmp_path, gpu, changed(TREE, old, new))
    assert codes(results) == dict.fromkeys(results, code)
    assert what in results["compile"].findings[0].what


def test_a_finding_points_to_the_line_of_a_todo(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "__constant__", "GPULAB_TODO(block_sums)\n__constant__")
    assert graded(tmp_path, gpu, source)["compile"].findings[0].where == line_of(source, "GPULAB_TODO")


def test_an_unwritten_output(gpu: Device, tmp_path: Path) -> None:
    results = graded(tmp_path, gpu, changed(TREE, "threadIdx.x == 0)", "threadIdx.x == 0 && i + BLOCK_SIZE <= n)"))
    assert codes(results)["correct[n=1]"] == codes(results)["correct[n=300]"] == "not-written"
    assert results["correct[n=block]"].verdict == "passed"


def test_a_read_beyond_the_end_is_named_with_its_line(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "i < n ? in[i]", "i <= n ? in[i]")
    results = graded(tmp_path, gpu, source)
    assert codes(results)["correct[n=1]"] == codes(results)["safe[memory]"] == "out-of-bounds"
    assert results["safe[memory]"].findings[0].where == line_of(source, "i <= n")


def test_a_missing_barrier_is_not_repeatable(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, ": GPULAB_T(0);\n    __syncthreads();", ": GPULAB_T(0);")
    results = graded(tmp_path, gpu, source)
    assert codes(results)["correct[n=block]"] == "not-repeatable"
    assert codes(results)["speedup[1.2x int32]"] == "not-repeatable"


def test_an_early_return_before_a_barrier(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "    tile[threadIdx.x] = i < n", "    if (i >= n) return;\n    tile[threadIdx.x] = i < n")
    assert codes(graded(tmp_path, gpu, source))["safe[barrier]"] in ("barrier", "deadlock")


def test_an_input_that_is_overwritten(gpu: Device, tmp_path: Path) -> None:
    source = changed(
        TREE, "    __shared__", "    ((GPULAB_T*)in)[blockIdx.x] = in[blockIdx.x] + 0 * n + 1;\n    __shared__"
    )
    assert codes(graded(tmp_path, gpu, source))["correct[n=1]"] == "input-changed"


def test_uninitialised_shared_memory(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "tile[threadIdx.x] = i < n ? in[i] : GPULAB_T(0);", "if (i < n) tile[threadIdx.x] = in[i];")
    results = graded(tmp_path, gpu, source)
    assert results["correct[n=block]"].verdict == "passed"
    assert codes(results)["correct[n=300]"] == "wrong-result"


def test_a_result_kept_in_a_device_variable(gpu: Device, tmp_path: Path) -> None:
    source = changed(
        TREE, "out[blockIdx.x] = weight * tile[0];", "out[blockIdx.x] = kept ? kept : (kept = weight * tile[0]);"
    )
    source = changed(source, "__constant__", "__device__ GPULAB_T kept;\n__constant__")
    results = graded(tmp_path, gpu, source)
    assert {codes(results)[name] for name in results if name.startswith("correct")} == {"wrong-result"}


def test_an_endless_loop_an_assertion_and_a_trap(gpu: Device, tmp_path: Path) -> None:
    loop = changed(TREE, "s > 0; s /= 2", "s >= 0; s /= 2")
    assert codes(graded(tmp_path, gpu, loop))["correct[n=1]"] == "endless-loop"
    asserting = "#include <assert.h>\n" + changed(
        TREE, "    if (threadIdx.x == 0) out", "    assert(n > 1);\n    if (threadIdx.x == 0) out"
    )
    results = graded(tmp_path, gpu, asserting)
    assert codes(results)["correct[n=1]"] == "assert" and results["correct[n=block]"].verdict == "passed"
    trapping = changed(
        TREE, "    if (threadIdx.x == 0) out", "    if (n == 300) __trap();\n    if (threadIdx.x == 0) out"
    )
    results = graded(tmp_path, gpu, trapping)
    assert codes(results)["correct[n=300]"] == "trap" and results["correct[n=1]"].verdict == "passed"


def test_a_trap_that_the_compiler_made_of_a_null_pointer(gpu: Device, tmp_path: Path) -> None:
    source = changed(
        TREE,
        "    if (threadIdx.x == 0) out",
        "    int *p = nullptr;\n    if (n == 300) *p = 1;\n    if (threadIdx.x == 0) out",
    )
    (found,) = graded(tmp_path, gpu, source)["correct[n=300]"].findings
    assert found.code == "trap" and found.where == line_of(source, "*p = 1")
    assert "The compiler" in found.hint and "null pointer" in found.hint and "that line" in found.hint


def test_the_output_of_a_kernel_is_kept(gpu: Device, tmp_path: Path) -> None:
    source = "#include <cstdio>\n" + changed(
        TREE, "== 0) out", '== 0) printf("n is %u\\n", n);\n    if (threadIdx.x == 0) out'
    )
    results = graded(tmp_path, gpu, source)
    assert results["correct[n=1]"].printed == "n is 1\n"
    assert results["correct[n=300]"].printed == "n is 300\n" * 3
