"""The `uses` checks: bounds on what the simulated GPU counts, on kernels that are really run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from block_sums import EXERCISE, HEAD, INTS, NAIVE, TREE, changed, graded, line_of

from pytest_gpulab import concepts
from pytest_gpulab.devices.protocol import Device, DeviceUnavailable
from pytest_gpulab.exercise import Bound, Exercise, ExerciseError, Plan, Problem, UsesCheck
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.correctness import checked_launches
from pytest_gpulab.grading.correctness.checked_launches import run_costed
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.speed import estimate
from pytest_gpulab.grading.time_limits import BESIDE_A_GPU, USUAL, CaseLimits
from pytest_gpulab.grading.usage import checks as usage_module

SERIAL = (
    HEAD
    + """
__global__ void block_sums(const GPULAB_T* in, GPULAB_T* out, unsigned n)
{
    if (threadIdx.x != 0) return;
    unsigned first = blockIdx.x * BLOCK_SIZE;
    GPULAB_T sum = in[first];
    for (unsigned i = first + 1; i < first + BLOCK_SIZE && i < n; ++i) sum = GPULAB_OP(sum, in[i]);
    out[blockIdx.x] = weight * sum;
}
"""
)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


def asking(*bounds: Bound, required: bool = True) -> Exercise:
    uses = UsesCheck("idea", bounds, 5, 5000, required=required, variant=INTS)
    first, *others = EXERCISE.speed
    return replace(EXERCISE, uses=(uses,), speed=(replace(first, points=first.points - 5), *others))


def idea_of(folder: Path, device: Device, source: str, exercise: Exercise) -> CheckResult:
    """Return the result of `uses[idea]`, and grade nothing else."""
    return graded(folder, device, source, exercise, "uses[idea]")["uses[idea]"]


def test_a_kept_bound_earns_the_points(gpu: Device, tmp_path: Path) -> None:
    result = idea_of(tmp_path, gpu, TREE, asking(concepts.barriers(20)))
    assert (result.verdict, result.points, result.findings) == ("passed", 5, ())


def test_a_broken_bound_says_figure_and_bound(gpu: Device, tmp_path: Path) -> None:
    result = idea_of(tmp_path, gpu, TREE, asking(concepts.barriers(2)))
    (found,) = result.findings
    assert (result.verdict, result.points, found.code) == ("failed", 0, "concept")
    assert (
        re.fullmatch(r"Too many barriers: \d+ per warp; this check allows 2\.", found.what)
        and "Which barriers" in found.hint
    )


def test_a_broken_upper_bound_names_the_lines_that_break_it_by_themselves(gpu: Device, tmp_path: Path) -> None:
    useless = "min(in[i * 8 % n], GPULAB_T(0))"  # all inputs are positive
    strided = changed(TREE, "? in[i]", f"? in[i] +\n        {useless}")
    exercise = asking(concepts.global_traffic(2))
    (found,) = idea_of(tmp_path, gpu, strided, exercise).findings
    assert found.where == line_of(strided, useless)
    assert found.evidence[0].startswith(f"{found.where}: ")


@pytest.mark.parametrize(("limits", "is_complete"), [(USUAL, True), (BESIDE_A_GPU, False)])
def test_beside_a_gpu_a_sample_of_the_timed_size_shows_that_a_bound_is_broken_there(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: CaseLimits, is_complete: bool
) -> None:
    complete: list[object] = []

    def run(*arguments: Any) -> Any:
        complete.append(arguments)
        return run_costed(*arguments)

    monkeypatch.setattr(estimate, "run_costed", run)
    barriers = "for (unsigned k = 0; k < 20 && n > 10000; ++k) __syncthreads();\n    unsigned i = blockIdx.x"
    path = tmp_path / "student.cu"
    path.write_text(changed(TREE, "unsigned i = blockIdx.x", barriers))
    (tmp_path / "naive.cu").write_text(NAIVE)
    exercise = asking(concepts.barriers(20))
    grader = Grader(LoadedExercise("sums", tmp_path, exercise), path, gpu, 1, limits=limits)
    (check,) = (check for check in checks_of(exercise) if check.kind == "uses")
    (found,) = grader.run(check).findings
    assert found.what.startswith("At size 2^14: Too many barriers: ")
    assert bool(complete) == is_complete


@pytest.mark.parametrize(
    ("limits", "needs", "verdict"),
    [(BESIDE_A_GPU, "idea", "failed"), (BESIDE_A_GPU, "", "passed"), (USUAL, "idea", "passed")],
)
def test_a_speedup_on_a_gpu_needs_the_concept_at_the_size_that_is_timed(
    gpu: Device, tmp_path: Path, limits: CaseLimits, needs: str, verdict: str
) -> None:
    barriers = "for (unsigned k = 0; k < 20 && n > 40000; ++k) __syncthreads();\n    unsigned i = blockIdx.x"
    path = tmp_path / "student.cu"
    path.write_text(changed(TREE, "unsigned i = blockIdx.x", barriers))
    (tmp_path / "naive.cu").write_text(NAIVE)
    exercise = asking(concepts.barriers(20))
    tiers = tuple(replace(tier, size=1 << 16, simulated_size=1 << 14, needs=needs) for tier in exercise.speed)
    exercise = replace(exercise, speed=tiers)
    grader = Grader(LoadedExercise("sums", tmp_path, exercise), path, gpu, 1, limits=limits)
    (result,) = (grader.run(check) for check in checks_of(exercise) if check.kind == "uses")
    assert result.verdict == verdict
    assert verdict == "passed" or result.findings[0].what.startswith("At size 2^16: Too many barriers: ")


def test_a_bonus_is_missed(gpu: Device, tmp_path: Path) -> None:
    result = idea_of(tmp_path, gpu, TREE, asking(concepts.barriers(2), required=False))
    assert result.verdict == "missed"


@pytest.mark.parametrize("required", [True, False])
def test_a_speedup_that_needs_a_concept_earns_nothing_without_it(gpu: Device, tmp_path: Path, required: bool) -> None:
    for allowed, verdict in ((20, "passed"), (2, "failed" if required else "missed")):
        exercise = asking(concepts.barriers(allowed), required=False)
        first, *others = exercise.speed
        needing = replace(first, threshold=0.1, needs="idea", required=required)
        results = graded(tmp_path, gpu, TREE, replace(exercise, speed=(needing, *others)))
        result = results["speedup[0.1x int32]"]
        assert result.verdict == verdict and bool(result.points) == (verdict == "passed")
        assert result.measurement is not None and [found.because for found in result.findings] == (
            [] if verdict == "passed" else ["uses[idea]"]
        )


def test_a_lower_bound_holds_as_well(gpu: Device, tmp_path: Path) -> None:
    result = idea_of(tmp_path, gpu, TREE, asking(concepts.constant_reads(3)))
    (found,) = result.findings
    assert "Too few reads of constant memory: 0.25 per warp; this check requires 3." in found.what


def test_reads_of_constant_memory_count_if_their_values_are_used(gpu: Device, tmp_path: Path) -> None:
    exercise = asking(concepts.constant_reads(0.2))
    assert idea_of(tmp_path, gpu, TREE, exercise).verdict == "passed"
    plain = """unsigned elsewhere, dropped;
    asm volatile("ld.b32 %0, [%1];" : "=r"(elsewhere) : "l"(&weight));
    asm volatile("ld.const.b32 %0, [weight];" : "=r"(dropped));
    if (threadIdx.x == 0) out[blockIdx.x] = *(GPULAB_T*)&elsewhere * tile[0];"""
    source = changed(TREE, "if (threadIdx.x == 0) out[blockIdx.x] = weight * tile[0];", plain)
    found, *_ = idea_of(tmp_path, gpu, source, exercise).findings
    assert found.what.endswith(": Too few reads of constant memory: 0 per warp; this check requires 0.2.")
    assert found.evidence[-1] == "reads of `__constant__` variables that come through the constant cache: 50 %"
    dropped = """for (int k = 0; k < 200; ++k) asm volatile("{ .reg .b32 d; ld.const.b32 d, [weight]; }");
    if (threadIdx.x == 0) out"""
    source = changed(TREE, "if (threadIdx.x == 0) out", dropped)
    found, *_ = idea_of(tmp_path, gpu, source, exercise).findings
    assert found.evidence[-1] == "reads of constant memory that affect an output: 0 of 12"


@pytest.mark.parametrize(
    ("bound", "stride", "what"),
    [
        (concepts.shared_reads(2), 1, "Too few reads of shared memory: 0 reads per warp; this check requires 2."),
        (concepts.bank_conflicts(9), 1, "Shared memory is hardly used: 0 accesses per warp; this check requires 1."),
        (concepts.shared_use(3), 32, "Shared memory is hardly used: 0 accesses per warp; this check requires 3."),
    ],
)
def test_reads_of_shared_memory_count_if_their_values_are_used(
    gpu: Device, tmp_path: Path, bound: Bound, stride: int, what: str
) -> None:
    assert idea_of(tmp_path, gpu, TREE, asking(bound)).verdict == "passed"
    idle = f"""__shared__ volatile int idle[BLOCK_SIZE * {stride}];
    for (int k = 0; k < 30; ++k) {{
        idle[threadIdx.x * {stride}] = k;
        __syncwarp();
        int dropped = idle[(threadIdx.x ^ 1) * {stride}];
        __syncwarp();
    }}
    if (threadIdx.x"""
    found, *_ = graded(tmp_path, gpu, changed(SERIAL, "if (threadIdx.x", idle), asking(bound))["uses[idea]"].findings
    assert found.what.endswith(what)
    assert found.evidence[-1] == "reads of shared memory that affect an output: 0 of 12"


def test_shared_memory_that_only_its_writer_reads_is_not_used(gpu: Device, tmp_path: Path) -> None:
    detour = """__shared__ volatile GPULAB_T own;
    for (int k = 0; k < 30; ++k) { own = sum; sum = own; }
    out[blockIdx.x] = weight * sum;"""
    source = changed(SERIAL, "out[blockIdx.x] = weight * sum;", detour)
    found, *_ = idea_of(tmp_path, gpu, source, asking(concepts.bank_conflicts(0.1))).findings
    assert found.what.endswith("Shared memory is hardly used: 0 accesses per warp; this check requires 1.")
    assert found.evidence[-1] == "values read from shared memory that another thread wrote: 0 %"


def test_a_wrong_kernel_is_not_counted(gpu: Device, tmp_path: Path) -> None:
    source = changed(TREE, "weight * tile[0]", "tile[0]")
    result = idea_of(tmp_path, gpu, source, asking(concepts.barriers(20)))
    assert result.verdict == "failed" and result.findings[0].because.startswith("correct[")


def test_counts_of_outputs_that_cannot_be_compared_earn_nothing(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adding(problem: Problem) -> Plan:
        made = EXERCISE.plan(problem)
        buffers = (replace(buffer, zeroed=buffer.role == "output") for buffer in made.buffers)
        return replace(made, buffers=tuple(buffers))

    exercise = replace(asking(concepts.barriers(20)), plan=adding)
    assert idea_of(tmp_path, gpu, TREE, exercise).verdict == "passed"
    monkeypatch.setattr(checked_launches, "LONG_WORK", 10)
    result = idea_of(tmp_path, gpu, TREE, exercise)
    (found,) = result.findings
    assert (result.verdict, found.code) == ("failed", "not-compared")
    assert found.what == (
        "At size 5000: the launches have too much work to run completely (more than 10 warp instructions). "
        "Their outputs cannot be compared, so their counts earn nothing."
    )
    assert found.hint.startswith("How often is each element read?")


def test_a_measure_that_raises_is_the_instructors_mistake(gpu: Device, tmp_path: Path) -> None:
    bound = Bound("nothing", lambda usage: usage.counters["no such counter"] / 0, at_most=1)
    result = idea_of(tmp_path, gpu, TREE, asking(bound))
    assert result.verdict == "not gradable" and "`uses`" in result.findings[0].what


def test_two_checks_of_one_name_are_refused() -> None:
    with pytest.raises(ExerciseError, match="more than one uses check"):
        replace(asking(concepts.barriers(2)), uses=asking(concepts.barriers(2)).uses * 2)


def test_without_a_simulated_gpu_nothing_is_counted(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(spec: str, isolated: bool, beside: str) -> None:
        assert beside == "sm_86"
        raise DeviceUnavailable("NVRTC is not installed")

    monkeypatch.setattr(usage_module, "open_device", unavailable)
    real = gpu.info._replace(kind="cuda", architecture="sm_86")
    with pytest.raises(BuildFailed) as blocked:
        usage_module.counting_device(cast(Device, SimpleNamespace(info=real)))
    assert blocked.value.verdict == "not gradable"
    assert blocked.value.finding.what == "The kernels cannot be counted here: NVRTC is not installed"


def test_shared_memory_without_conflicts_must_be_used(gpu: Device, tmp_path: Path) -> None:
    """An unused shared memory has no conflict; that is no merit."""
    (missed,) = idea_of(tmp_path, gpu, SERIAL, asking(concepts.bank_conflicts(0.1))).findings
    assert missed.what == "Shared memory is hardly used: 0 accesses per warp; this check requires 1."


def test_atomics_have_bank_conflicts_as_well(gpu: Device, tmp_path: Path) -> None:
    check = asking(concepts.bank_conflicts(0.1))
    assert idea_of(tmp_path, gpu, TREE, check).verdict == "passed"
    hidden = """__shared__ GPULAB_T rows[32 * BLOCK_SIZE];
    atomicExch((int*)rows + 32 * threadIdx.x, 0);
    atomicExch((int*)rows + 32 * threadIdx.x, 0);
    if (threadIdx.x == 0) out"""
    found, *_ = idea_of(tmp_path, gpu, changed(TREE, "if (threadIdx.x == 0) out", hidden), check).findings
    assert found.what.startswith("Too many bank conflicts: ")


def test_a_loop_that_waits_counts_as_a_barrier(gpu: Device, tmp_path: Path) -> None:
    own = """__shared__ unsigned arrived;
    if (threadIdx.x == 0) arrived = 0;
    __syncthreads();
    for (unsigned round = 1; round <= 30; ++round) {
        atomicAdd(&arrived, 1u);
        while (atomicAdd(&arrived, 0u) < round * BLOCK_SIZE) { }
    }
    if (threadIdx.x == 0) out"""
    source = changed(TREE, "if (threadIdx.x == 0) out", own)
    found, *_ = idea_of(tmp_path, gpu, source, asking(concepts.barriers(20))).findings
    assert found.what.startswith("Too many barriers: ")
    assert found.where == line_of(source, "while (atomic")


def test_values_that_are_added_and_subtracted_again_are_not_used(gpu: Device, tmp_path: Path) -> None:
    idle = """__shared__ volatile int idle[BLOCK_SIZE];
    idle[threadIdx.x] = threadIdx.x;
    __syncthreads();
    GPULAB_T nothing = 0;
    for (int k = 0; k < 9; ++k) nothing += idle[threadIdx.x ^ 1] - idle[threadIdx.x ^ 1];
    if (threadIdx.x"""
    source = changed(changed(SERIAL, "if (threadIdx.x", idle), "weight * sum", "weight * sum + nothing")
    found, *_ = idea_of(tmp_path, gpu, source, asking(concepts.shared_reads(2))).findings
    assert found.what.endswith("Too few reads of shared memory: 0 reads per warp; this check requires 2.")
    assert found.evidence[-1] == "reads of shared memory that affect an output: 0 of 12"


@pytest.mark.parametrize(
    ("copies", "nothing"),
    [
        ("one[t] = copy[t] = value;", "one[k] - copy[k]"),
        ("one[t] = value; copy[t] = ~value;", "one[k] + copy[k] + 1"),
        ("one[t] = value; copy[t ^ 16] = __shfl_xor_sync(~0u, value, 16);", "one[k] - copy[k]"),
        ("one[t] = value & 255; copy[t] = value & ~255; both[t] = value;", "(one[k] | copy[k]) - both[k]"),
    ],
)
def test_copies_that_cancel_each_other_out_are_not_used(gpu: Device, tmp_path: Path, copies: str, nothing: str) -> None:
    idle = f"""__shared__ volatile int one[BLOCK_SIZE], copy[BLOCK_SIZE], both[BLOCK_SIZE];
    int t = threadIdx.x, value = blockIdx.x * BLOCK_SIZE + t < n ? (int)in[blockIdx.x * BLOCK_SIZE + t] : t;
    {copies}
    __syncthreads();
    GPULAB_T nothing = 0;
    for (int k = 0; k < 9 && t < 32; ++k) nothing += {nothing};
    if (threadIdx.x"""
    source = changed(changed(SERIAL, "if (threadIdx.x", idle), "weight * sum", "weight * sum + nothing")
    found, *_ = idea_of(tmp_path, gpu, source, asking(concepts.shared_reads(2))).findings
    assert found.what.endswith("Too few reads of shared memory: 0 reads per warp; this check requires 2.")
    assert found.evidence[-1] == "outputs are the same if all reads of shared memory return the values of other inputs"


def test_values_that_are_only_compared_count_if_the_exercise_is_about_comparisons(gpu: Device, tmp_path: Path) -> None:
    shown = """__shared__ GPULAB_T shown[BLOCK_SIZE];
    GPULAB_T value = blockIdx.x * BLOCK_SIZE + threadIdx.x < n ? in[blockIdx.x * BLOCK_SIZE + threadIdx.x] : 0;
    shown[threadIdx.x] = value;
    __syncthreads();
    bool known = true;
    for (int k = 1; k < 9 && threadIdx.x < 32; ++k) known &= shown[threadIdx.x ^ k] == __shfl_xor_sync(~0u, value, k);
    if (threadIdx.x"""
    spoiled = changed(changed(SERIAL, "if (threadIdx.x", shown), "weight * sum", "known ? weight * sum : 0")
    exercise = asking(concepts.shared_reads(2))
    (found,) = idea_of(tmp_path, gpu, spoiled, exercise).findings
    assert found.what.endswith("Too few reads of shared memory: 0 reads per warp; this check requires 2.")
    (uses,) = exercise.uses
    about_comparisons = replace(exercise, uses=(replace(uses, compared=True),))
    assert idea_of(tmp_path, gpu, spoiled, about_comparisons).verdict == "passed"
