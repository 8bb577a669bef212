"""The smallest failing input of wrong kernels, on the simulated GPU; each is run again by its own command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import block_sums
import numpy as np
import pytest

from pytest_gpulab.command import main
from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.errors import HazardKind
from pytest_gpulab.devices.protocol import Device, Hazard, SourceLine
from pytest_gpulab.exercise import Case, Exercise, Problem
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.correctness import shrinking, trials
from pytest_gpulab.grading.correctness.trials import Trial, Trials
from pytest_gpulab.grading.diagnosis.causes import LAST_COLUMNS, PITCH
from pytest_gpulab.grading.diagnosis.compare import Repeats
from pytest_gpulab.grading.diagnosis.value_patterns import TRANSPOSED
from pytest_gpulab.grading.findings import HINTS, finding
from pytest_gpulab.grading.grade import CheckResult, SmallestInput
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.plans.prepare import Prepared
from pytest_gpulab.grading.time_limits import TIME_LIMIT, USUAL, TimeBudget
from pytest_gpulab.single_kernel import single_kernel

ROOT = Path(__file__).resolve().parents[2]
NO_CAUSES = USUAL._replace(causes=False)  # they take runs of other cases


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("sim")[0]


def correct_and_safe(grader: Grader, exercise: Exercise) -> Iterator[CheckResult]:
    return (grader.run(check) for check in checks_of(exercise) if check.kind in ("compile", "correct", "safe"))


@pytest.mark.unit
def test_a_smaller_input_must_show_the_same_kind_of_race() -> None:
    """A write-after-write race may be a write-after-read one at a smaller size, at the same line."""

    def trial(way: str, line: int = 7, kind: HazardKind = "race") -> Any:
        hazard = Hazard(kind, f"potential {way} hazard on __shared__ memory", SourceLine("a.cu", line))
        case = SimpleNamespace(name="n=2", hidden=False)
        return SimpleNamespace(case=case, outcome=SimpleNamespace(hazards=(hazard,), faults=()))

    found = finding("race", "Potential write-after-write (WAW) hazard on __global__ memory", "a.cu:7")
    same = trials.same_hazard("race", found)
    assert same(trial("write-after-write (WAW)")) is not None
    assert same(trial("write-after-read (WAR)")) is None and same(trial("write-after-write (WAW)", 8)) is None
    other = trials.same_hazard("barrier", finding("barrier", "divergent threads (128 missing)", "a.cu:7"))
    assert other(trial("divergent threads (1 missing)", kind="barrier")) is not None


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("fails for every n tried", shrinking.EVERY_SIZE),
        ("fails for every size tried", shrinking.EVERY_SIZE),
        ("fails for every n tried but n = 256", HINTS["wrong-result"]),
        ("fails for every n that is at least 2; right for all others tried", HINTS["wrong-result"]),
        ("", HINTS["wrong-result"]),
    ],
)
def test_sizes_are_to_be_compared_only_if_some_are_right(rule: str, hint: str) -> None:
    found = finding("wrong-result", "`out`: the only element is wrong.")
    assert shrinking.with_smallest(found, SmallestInput("n = 1", rule, "gpulab explain")).hint == hint
    swapped = "fails for every size where width and height differ; right for all others tried"
    beyond = finding("out-of-bounds", "`out[37]` written")
    assert shrinking.with_smallest(beyond, SmallestInput("n = 1", swapped, "gpulab explain")).hint == TRANSPOSED
    wide = "fails for every size where width is larger than height; right for all others tried"
    assert shrinking.with_smallest(beyond, SmallestInput("n = 1", wide, "gpulab explain")).hint == PITCH
    for code in ("not-written", "wrong-result"):
        edge = replace(finding(code, "`out`: the last column"), hint=LAST_COLUMNS)
        every = SmallestInput("n = 1", "fails for every size tried", "gpulab explain")
        assert shrinking.with_smallest(edge, every).hint == LAST_COLUMNS
        assert shrinking.with_smallest(edge, SmallestInput("n = 1", swapped, "gpulab explain")).hint == TRANSPOSED
        unwritten = replace(edge, hint=HINTS["uninitialised"])
        assert shrinking.with_smallest(unwritten, SmallestInput("n = 1", swapped, "gpulab explain")).hint == TRANSPOSED
    told = replace(found, hint="Usual cause: a lost sign.")
    assert shrinking.with_smallest(told, SmallestInput("n = 1", rule, "gpulab explain")).hint == told.hint


def smallest(device: Device, path: Path, seed: int = 20) -> SmallestInput:
    """Return the smallest failing input of the first finding."""
    loaded = Catalogue(ROOT / "exercises").load(path.parent.name)
    grader = Grader(loaded, path, device, seed, limits=NO_CAUSES)
    results = correct_and_safe(grader, loaded.exercise)  # up to that finding
    return next(finding.smallest for result in results for finding in result.findings if finding.smallest)


WRONG = {
    "reduction/stops_at_two": (
        "n = 2, in = [0 1]: out should be [1], is [0]",
        "fails for every n that is at least 2; right for all others tried",
    ),
    "reduction/padded_with_zero": ("n = 1, in = [-1]: out should be [-1], is [0]", None),
    "reduction/misaligned_vector": (
        "n = 5, in = [0 0 0 0 0]: Invalid __global__ read of size 16 bytes: the address is misaligned: `in[1]` to "
        "`in[4]` read at once, byte 4 is no multiple of 16",
        "",
    ),
    "scan/offset_of_own_block": (
        "n = 257, in = [0 (256 times) 1]: out[256] should be 1, is 2",
        "fails for every n that is at least 257; right for all others tried",
    ),
    "scan/guard_off_by_one": ("n = 1, in = [0]: out should be [0], was never written", None),
    "divergence/no_guard": (
        "n = 1, in = [1]",
        "fails for every n that is no multiple of 256; right for all others tried",
    ),
    "divergence/missing_barrier": (
        "n = 2, in = [1 1]: out should be [2.75527763 8.86366463], is [2.75527763 nan]",
        None,
    ),
    "constant_memory/swapped_guard": (
        "width = 2, height = 1, count = 1, vectors = [[0 0]]: Invalid __global__ write of size 4 bytes: `out[2]` "
        "written, `out` has 2 elements",
        "fails for every size where width and height differ; right for all others tried",
    ),
    "constant_memory/transposed": (
        "width = 2, height = 2, count = 1, vectors = [[0 1]]: out should be [[1 2] [0 1]], is [[1 0] [2 1]]",
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_smallest_failing_input_of_a_wrong_kernel(
    name: str, device: Device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "tests" / "wrong" / f"{name}.cu"
    what, rule = WRONG[name]
    found = smallest(device, path)
    assert found.what == what
    assert rule is None or found.rule == rule
    words = shlex.split(found.command)
    assert words[:3] == ["gpulab", "explain", path.name]
    monkeypatch.chdir(path.parent)
    assert main.main([*words[1:], "--format", "text"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    given, _, failure = found.what.partition(": ")
    assert given in printed and failure in printed


def test_each_trial_of_a_search_has_the_time_of_a_case(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the input would depend on the machine's speed. No input is tried twice."""
    begun: list[str] = []
    tried: list[list[bytes]] = []
    begin, run = TimeBudget.begin, Trials.run

    def noted(self: Trials, case: Case, problem: Problem, prepared: Prepared, repeats: Repeats) -> Trial:
        begun.append("trial")
        tried.append([values.tobytes() for values in prepared.inputs.values()])
        return run(self, case, problem, prepared, repeats)

    monkeypatch.setattr(TimeBudget, "begin", lambda self: begun.append("case") or begin(self))
    monkeypatch.setattr(Trials, "run", noted)
    smallest(device, ROOT / "tests" / "wrong" / "reduction" / "stops_at_two.cu")
    trials = [at for at, what in enumerate(begun) if what == "trial"]
    assert len(trials) > 5 and all(begun[at + 1] == "case" for at in trials)
    assert all(contents not in tried[:at] for at, contents in enumerate(tried))


def test_a_slow_machine_finds_the_same_input(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "tests" / "wrong" / "reduction" / "stops_at_two.cu"
    fast = smallest(device, path)
    charge = TimeBudget.charge
    monkeypatch.setattr(TimeBudget, "charge", lambda self, took_s, is_launch=True: charge(self, 0.4, is_launch))
    assert smallest(device, path) == fast


def test_a_search_ends_with_its_work(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "tests" / "wrong" / "reduction" / "stops_at_two.cu"
    ran: list[Trial] = []
    run = Trials.run
    monkeypatch.setattr(Trials, "run", lambda self, *each: ran.append(run(self, *each)) or ran[-1])
    monkeypatch.setattr(shrinking, "MAX_STEPS", 600)
    found, count = smallest(device, path), len(ran)
    assert found.what.startswith("n = 2, in = [0 1]") and 10 < count < 30
    assert [fault.code for fault in ran[-1].outcome.faults] == [TIME_LIMIT]
    assert smallest(device, path) == found and len(ran) == 2 * count


@pytest.mark.unmeasured
def test_the_same_seed_gives_the_same_input(device: Device) -> None:
    path = ROOT / "tests" / "wrong" / "scan" / "int_temporary.cu"
    what = "n = 2, in = [0.5 0]: out should be [0 0.5], is [0 0]"
    rule = "fails for every n that is at least 2; right for all others tried"
    command = "gpulab explain int_temporary.cu --case n=2 --n 2 --in 0.5,0"
    assert smallest(device, path, 7) == SmallestInput(what, rule, command)


def test_nothing_is_searched_for_a_right_kernel(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "_Search", None)
    found = block_sums.graded(tmp_path, device, block_sums.TREE)
    assert {result.verdict for name, result in found.items() if "speedup" not in name} == {"passed"}


HEAD = "#include <gpulab.cuh>\n"
PLAIN_ADDITION = """GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        bins[in[i]]++;
    __syncthreads();
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
"""
EITHER_BOUND = """GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 8)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width || y < height)
        out[y * width + x] = a[y * width + x] + b[y * width + x];
}
"""
PATHS_OF_THE_BLOCK = """#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 64)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = threadIdx.x < 32 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i / 8, in[i]);
}
"""


def submission(source: str, exercise: str, folder: Path) -> Path:
    file = folder / exercise / f"{exercise}.cu"
    file.parent.mkdir()
    file.write_text(HEAD + source)
    return file


def test_elements_that_the_failure_does_not_need_are_left_out(device: Device, tmp_path: Path) -> None:
    """The random values of so few elements differ."""
    found = smallest(device, submission(PLAIN_ADDITION, "histogram", tmp_path))
    assert found.what == "n = 2, in = [0 0]: out[0] should be 2, is 1"
    assert found.rule == "fails for every n that is at least 2; right for all others tried"


def test_a_rule_of_two_extents_fits_the_cases(device: Device, tmp_path: Path) -> None:
    found = smallest(device, submission(EITHER_BOUND, "matrix_sum", tmp_path))
    assert found.rule == "fails for every size tried but width = 96, height = 16"


def test_each_kernel_has_its_smallest_input(device: Device, tmp_path: Path) -> None:
    path = submission(PATHS_OF_THE_BLOCK, "divergence", tmp_path)
    loaded = Catalogue(ROOT / "exercises").load("divergence")
    results = correct_and_safe(Grader(loaded, path, device, 20), loaded.exercise)
    found = {finding.smallest for result in results for finding in result.findings if finding.smallest}
    assert {shlex.split(each.command)[4].partition(" ")[0] for each in found} == {"two-way", "eight-way"}


TRANSPOSE = """#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 8)
GPULAB_TUNABLE(TILE_Y, 4)
__global__ void transpose(const float *in, const float *more, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        out[x * height + y] = in[y * width + x] + more[LOADED];
}
"""


def test_an_exercise_of_one_kernel_with_two_inputs_and_two_extents(device: Device, tmp_path: Path) -> None:
    exercise = single_kernel(
        "transpose",
        "transpose",
        inputs={"in": np.float32, "more": np.float32},
        output=np.float32,
        reference=lambda given, more: (given + more).T.reshape(given.shape),
        tolerance=lambda given, more: np.full(given.shape, 1e-5),
        speed={2: 20},
        dimensions=2,
    )
    path = tmp_path / "transpose.cu"
    path.write_text(TRANSPOSE.replace("LOADED", "y * width"))
    grader = Grader(LoadedExercise("transpose", tmp_path, exercise), path, device, 1)
    results = correct_and_safe(grader, exercise)
    found = next(finding for result in results for finding in result.findings)
    assert found.smallest is not None
    assert found.smallest.what == (
        "width = 2, height = 1, in = [[0 0]], more = [[0 1]]: out should be [[0 1]], is [[0 0]]"
    )
