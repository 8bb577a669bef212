"""Figures as data: rows, arrows and marks of the ladders' kernels and of wrong ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.correctness.requests import Request
from pytest_gpulab.grading.correctness.shrinking import _Search
from pytest_gpulab.grading.explanation.drawing import Drawn, Subject, drawn
from pytest_gpulab.grading.explanation.figure import Figure
from pytest_gpulab.grading.smallest_failing import smallest_failing

ROOT = Path(__file__).resolve().parents[2]
DEVICE = open_device("sim")[0]


@cache
def draw(path: str, size: tuple[int, ...] = ()) -> Drawn:
    """Draw a file once for all tests: it searches the smallest failing input."""
    file = ROOT / path
    loaded = Catalogue(ROOT / "exercises").load(file.parent.name)
    return drawn(Subject(loaded, file, DEVICE, 20, smallest_failing), Request(size=size))


def arrows(figure: Figure, row: int) -> set[tuple[int, int, int]]:
    """Return (from, to, thread) of a row's arrows."""
    return {(arrow.source.index, arrow.index, arrow.thread) for arrow in figure.rows[row].arrows}


def test_a_reduction_tree() -> None:
    found = draw("solutions/reduction/08_shared_sequential.cu")
    (figure,) = found.figures
    assert found.note == "Drawn with BLOCK_SIZE = 32 instead of 256, where it behaves the same."
    strides = [f"tile, step {k + 1}, stride = {16 >> k}" for k in range(5)]
    assert list(figure.captions) == ["in, before", "tile, step 0", *strides, "out, step 6"]
    for k in range(5):
        stride = 16 >> k
        expected = {(t, t, t) for t in range(stride)} | {(t + stride, t, t) for t in range(stride)}
        assert arrows(figure, k + 2) == expected
        assert figure.active(figure.rows[k + 2]) == f"line 19: {stride} of 32 threads write"
    assert figure.rows[-1].values.tolist() == [528] and not figure.marks
    assert figure.active(figure.rows[-1]) == "line 23: 1 of 32 threads write"


def test_hillis_steele() -> None:
    (figure,) = draw("solutions/scan/01_hillis_steele.cu").figures
    steps = [row for row, caption in enumerate(figure.captions) if "step = " in caption]
    for row, distance in zip(steps, (1, 2, 4, 8, 16), strict=True):
        expected = {(t, t, t) for t in range(32)} | {(t - distance, t, t) for t in range(distance, 32)}
        assert arrows(figure, row) == expected


def test_blellochs_sweeps() -> None:
    (figure,) = draw("solutions/scan/03_blelloch.cu").figures
    up, down = ([n for n, row in enumerate(figure.rows) if row.line == line] for line in (28, 41))
    assert [figure.captions[n].partition("stride = ")[2] for n in (*up, *down)] == [
        "1", "2", "4", "8", "16", "32", "32", "16", "8", "4", "2", "1",
    ]  # fmt: skip
    assert arrows(figure, up[1]) == {(4 * t + at, 4 * t + 3, t) for t in range(16) for at in (1, 3)}
    # the left child gets the value of its parent, the right one the sum of both
    assert {each for each in arrows(figure, down[1]) if each[2] == 1} == {(63, 47, 1), (47, 63, 1), (63, 63, 1)}
    (cleared,) = (row for row in figure.rows if row.writers == {63: [0]} and row.values[63] == 0)
    assert cleared.arrows == []


def test_a_warp_reduction_by_shuffles() -> None:
    (figure,) = draw("solutions/reduction/10_shuffle_unroll8.cu").figures
    passed = [n for n, row in enumerate(figure.rows) if row.array.name == "value"]
    offsets = [16 >> k for k in range(5)]
    assert [figure.captions[n] for n in passed] == [f"value, step {s}, offset = {o}" for s in (0, 1) for o in offsets]
    assert figure.active(figure.rows[passed[0]]) == "line 19: 32 of 32 threads shuffle"
    for row, offset in zip(passed[1:5], offsets[:4], strict=True):
        lanes = {(t, t, t) for t in range(32)}
        assert arrows(figure, row) == lanes | {(t + offset, t, t) for t in range(32 - offset)}
    sums = figure.rows[passed[5] - 1]
    assert (sums.array.name, arrows(figure, passed[5] - 1)) == ("of_warp", {(0, 0, 0), (1, 0, 0)})


def test_a_shuffle_from_a_single_lane_has_no_arrows_from_the_own_value(tmp_path: Path) -> None:
    source = (ROOT / "solutions/reduction/08_shared_sequential.cu").read_text()
    changed = source.replace("tile[0];", "__shfl_sync(1, tile[0], 0);")
    assert changed != source
    file = tmp_path / "reduction" / "reduction.cu"
    file.parent.mkdir()
    file.write_text(changed)
    (figure,) = draw(str(file)).figures
    assert figure.rows[-2].array.is_register and arrows(figure, len(figure.rows) - 1) == {(0, 0, 0)}


RIGHT = (
    "constant_memory/01_constant", "divergence/02_eight_way_by_warp", "reduction/11_vector_grid_stride",
    "scan/06_single_pass",
)  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_have_figures_without_marks(name: str) -> None:
    found = draw(f"solutions/{name}.cu")
    assert found.trial.outcome.verdict == "passed"
    assert found.figures and all(figure.rows and not figure.marks for figure in found.figures)
    assert all(figure.accesses or figure.warps for figure in found.figures)


MARKED = {
    "tests/wrong/divergence/input_changed.cu": "thread 0 overwrites in[0], an input",
    "tests/wrong/matrix_sum/adds_in_place.cu": "thread 0 overwrites a[y=0, x=0], an input",
    "tests/wrong/reduction/missing_barrier.cu": "race of threads 32 and 0 on tile[32]: no barrier between lines 12",
    "tests/wrong/reduction/guard_off_by_one.cu": "invalid __global__ read of size 4 bytes: `in[1]` read, `in` has 1",
    "tests/wrong/reduction/misaligned_vector.cu": "`in[1]` to `in[4]` read at once, byte 4 is no multiple of 16",
    "tests/wrong/reduction/shuffle_names_absent_lanes.cu": "thread 0: invalid arguments: a shuffle from a lane that is",
    "tests/wrong/reduction/shuffles_from_idle_lanes.cu": "thread 0: invalid arguments: a shuffle from a lane that is",
    "tests/wrong/reduction/stops_at_two.cu": "in[1] reaches no output",
    "tests/wrong/reduction/tensor_cores_in_half_a_warp.cu": "a tensor-core operation needs all 32 threads",
    "tests/wrong/reduction/uninitialised_shared.cu": "which was never written",
    "tests/wrong/scan/last_block_left_alone.cu": "out[32] is 0 until the end, right is 1",
    "tests/wrong/scan/missing_barrier.cu": "race of threads 32 and 31 on warp_sums[0]",  # thread 32 writes nothing
}


@pytest.mark.parametrize("path", MARKED)
def test_mistakes_are_marked_in_figures(path: str) -> None:
    marks = [mark.what for figure in draw(path).figures for mark in figure.marks]
    assert any(MARKED[path] in what for what in marks), marks


def test_a_hazard_comes_before_wrong_results_of_later_cases() -> None:
    """It may cause them, and it shows in a smaller input."""
    found = draw("tests/wrong/scan/sums_by_all_threads.cu")
    assert (found.trial.problem.size, [each.code for each in found.hidden]) == (2, ["race"])


def test_elements_that_another_block_writes_are_not_unwritten() -> None:
    found = draw("tests/wrong/scan/chained_without_fence.cu")
    marks = {mark.what for figure in found.figures for mark in figure.marks}
    assert marks == {"race of blocks 1 and 0 on prefixes[1]: blocks run in no order (line 17 and 19)"}


@pytest.mark.parametrize(
    ("path", "block", "words"),
    [
        ("scan/fixed_point", "block 0 of 1", "first wrong value: out[0] is -4252.57812, right is -4252.58105"),
        ("histogram/full_blocks_only", "block 0 of 1", "no thread writes out[0]"),
    ],
)
def test_the_block_with_the_first_wrong_element_is_drawn(path: str, block: str, words: str) -> None:
    """An output that holds zeros may miss what no thread adds."""
    figures = draw(f"tests/wrong/{path}.cu").figures
    (marked,) = (figure for figure in figures if figure.has_marks)
    assert block in marked.title and marked.marks[0].what == words


HEAD = "#include <gpulab.cuh>\n"
SECOND_BLOCK = """GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 1)

__global__ void matrix_sum(const float *a, const float *b, float *out, int width, int height)
{
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y, i = y * width + x;
    if (x < width)
        out[i] = blockIdx.x == 1 && gridDim.x > 2 ? a[i] - b[i] : a[i] + b[i];
}
"""
COUNTS = """GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    out[threadIdx.x] = bins[threadIdx.x];
}
"""
ACCUMULATOR = """GPULAB_TUNABLE(BLOCK_SIZE, 32)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T acc;
    if (threadIdx.x == 0) acc = GPULAB_IDENTITY;
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    __syncthreads();
    if (i < n)
        acc = GPULAB_OP(acc, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = acc;
}
"""
PART_OF_THE_VECTORS = """GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

__constant__ float2 vectors[64];

__global__ void field(float *out, int width, int height, int count)
{
    __shared__ float2 v[64];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (threadIdx.y == 0 && threadIdx.x < count)
        v[threadIdx.x] = vectors[threadIdx.x];
    __syncthreads();
    if (x >= width || y >= height) return;
    float s = 0;
    for (int k = 0; k < count; k++) {
        float dx = x - v[k].x, dy = y - v[k].y;
        s += dx * dx + dy * dy;
    }
    out[y * width + x] = s;
}
"""
BEGINS_WITH_THE_SECOND = """#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 64)

__global__ void transform2(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x + 1;
    if (i < n)
        out[i] = i % 2 == 0 ? path0(in[i]) : path1(in[i]);
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
}
"""


def draw_text(source: str, exercise: str, folder: Path) -> Drawn:
    file = folder / exercise / f"{exercise}.cu"
    file.parent.mkdir()
    file.write_text(HEAD + source)
    return draw(str(file))


def test_a_block_with_a_wrong_element_that_is_neither_the_first_nor_the_last_one_is_drawn(tmp_path: Path) -> None:
    found = draw_text(SECOND_BLOCK, "matrix_sum", tmp_path)
    (marked,) = (figure for figure in found.figures if figure.has_marks)
    assert "block 1 of 3" in marked.title
    assert marked.marks[0].what == "first wrong value: out[y=0, x=7] is -1, right is 1"


def marks_of(found: Drawn) -> list[str]:
    return [mark.what for figure in found.figures for mark in figure.marks]


def test_smaller_blocks_that_fail_in_another_line_are_not_drawn(tmp_path: Path) -> None:
    found = draw_text(COUNTS, "histogram", tmp_path)
    assert (found.trial.problem.size, found.note) == (257, "")
    race = "race of blocks 0 and 1 on out[0]: blocks run in no order (line 13)"
    assert race in marks_of(found) and not any(figure.has_race for figure in found.figures)


def test_marks_that_differ_in_numbers_are_one_line() -> None:
    (figure,) = draw("tests/wrong/reduction/missing_barrier.cu").figures
    lines = [words for row in range(len(figure.rows)) for words in figure.mistakes(row)]
    assert "thread 0 reads tile[32] before any thread has written it (and 31 more)" in lines
    assert len(lines) < len(figure.marks) / 10


def test_a_shared_variable_has_its_name_and_one_mark_per_race(tmp_path: Path) -> None:
    races = [what for what in marks_of(draw_text(ACCUMULATOR, "reduction", tmp_path)) if what.startswith("race")]
    assert races == ["race of threads 0 and 1 on acc: no barrier between accesses in line 11"]


def test_elements_of_vectors_have_the_names_of_their_parts(tmp_path: Path) -> None:
    found = draw_text(PART_OF_THE_VECTORS, "constant_memory", tmp_path)
    assert "thread 0 reads v[4].x, which was never written" in marks_of(found)


def test_an_output_that_no_thread_writes_is_drawn(tmp_path: Path) -> None:
    found = draw_text(BEGINS_WITH_THE_SECOND, "divergence", tmp_path)
    (figure,) = found.figures
    assert [row.array.name for row in figure.rows] == ["out"] and marks_of(found) == ["no thread writes out[0]"]


def test_elements_of_blocks_that_are_not_drawn_are_not_lost() -> None:
    found = draw("tests/wrong/matrix_sum/last_column_dropped.cu", size=(9, 1))
    first, last = found.figures
    assert "block 0 of 3" in first.title and "block 2 of 3" in last.title
    assert {mark.what for mark in first.marks} == {
        "a[y=0, x=8] reaches no output", "b[y=0, x=8] reaches no output", "no thread writes out[y=0, x=8]",
    }  # fmt: skip


@pytest.mark.unmeasured
def test_rows_without_a_barrier_between_them_name_the_threads() -> None:
    (figure,) = draw("tests/wrong/reduction/missing_barrier.cu").figures
    assert (0, 32) in {row.unordered for row in figure.rows} and figure.has_race
    assert {(row.array.name, row.line) for row in figure.rows} == {("in", 0), ("tile", 12), ("tile", 17), ("out", 20)}
    (right,) = draw("solutions/reduction/08_shared_sequential.cu").figures
    assert all(row.unordered is None for row in right.rows)


@pytest.mark.unmeasured
def test_divergence_and_sectors_are_seen() -> None:
    figure = draw("solutions/reduction/06_shared_modulo.cu").figures[0]
    active = {len(run.lanes) for run in figure.warps[0]}
    assert {32, 16, 8} <= active
    scattered = draw("solutions/constant_memory/02_scattered_index.cu").figures[0]
    assert any(access.space == "global" and access.cost >= access.best for access in scattered.accesses)


@pytest.mark.unmeasured
def test_bank_conflicts_are_counted() -> None:
    figure = draw("solutions/scan/03_blelloch.cu").figures[0]
    padded = draw("solutions/scan/04_blelloch_padded.cu").figures[0]
    worst, better = (max(a.cost for a in each.accesses if a.space == "shared") for each in (figure, padded))
    assert worst == 2 and better <= worst


def test_a_transposed_tile_is_drawn_with_its_padding() -> None:
    (figure,) = draw("solutions/transpose/02_padded_tile.cu").figures
    given, tile, out = figure.rows
    assert figure.title == "transpose, block 0 of 1, thread number = x + 4*y"
    assert (given.array.shape, tile.array.shape, out.array.shape) == ((4, 4), (4, 5), (4, 4))
    assert not tile.known.reshape(4, 5)[:, 4].any() and tile.known.reshape(4, 5)[:, :4].all()
    assert (out.values.reshape(4, 4) == given.values.reshape(4, 4).T).all()
    assert arrows(figure, 2) == {(5 * x + y, 4 * y + x, 4 * y + x) for x in range(4) for y in range(4)}


def test_a_tile_with_a_halo_has_the_shape_of_its_declaration() -> None:
    (figure,) = draw("solutions/stencil/01_shared_tile.cu").figures
    (tile,) = {row.array.shape for row in figure.rows if row.array.name == "tile"}
    assert len(tile) == 2 and tile[0] > 4


def test_a_right_kernel_is_drawn_with_a_full_block() -> None:
    trial = draw("solutions/divergence/01_two_way_by_warp.cu").trial
    assert trial.problem.size == trial.prepared.plan.launches[0].block[0]


@pytest.mark.unmeasured
def test_a_race_is_drawn_in_the_order_in_which_the_result_is_wrong() -> None:
    found = draw("tests/wrong/reduction/missing_barrier.cu")
    assert found.note.endswith("in which the result is wrong: the first warp runs first.")
    (figure,) = found.figures
    assert "thread 0 reads tile[32] before any thread has written it" in [mark.what for mark in figure.marks]
    first = next(mark for mark in figure.marks if mark.what.startswith("first wrong value"))
    row = figure.rows[first.row]
    assert (row.array.name, first.index, row.writers[0]) == ("tile", 0, [0])
    assert (32, 0) in {(arrow.source.index, arrow.thread) for arrow in row.arrows}  # before thread 32 has written it
    assert first.what == f"first wrong value: tile[0] is {row.values[0]}, right is 0"
    right = draw("solutions/reduction/08_shared_sequential.cu")
    assert "order of warps" not in right.note


def test_the_first_wrong_value_of_a_plan_of_several_launches_is_found_with_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[object] = []
    smallest = _Search.smallest
    monkeypatch.setattr(_Search, "smallest", lambda search: searches.append(search) or smallest(search))
    figures = draw("tests/wrong/scan/missing_block_sums.cu").figures
    assert len(searches) == 1  # with small blocks only
    wrong = {figure.title: [m for m in figure.marks if "first wrong value" in m.what] for figure in figures}
    assert [title for title, marks in wrong.items() if marks] == ["scan_block, launch 2 of 3, block 0 of 1"]
    figures = draw("tests/wrong/scan/offset_of_own_block.cu").figures
    wrong = {figure.title: [m.what for m in figure.marks] for figure in figures}
    assert wrong["add_offsets, launch 3 of 3, block 1 of 2"] == ["first wrong value: out[32] is 2, right is 1"]


def test_the_first_wrong_value_of_a_single_launch_is_that_of_the_reference() -> None:
    (figure,) = draw("tests/wrong/reduction/stops_at_two.cu").figures
    assert "first wrong value: out[0] is 0, right is 1" in [mark.what for mark in figure.marks]


def test_a_launch_that_the_device_repeats_has_one_figure() -> None:
    (figure,) = draw("tests/wrong/reduction/shuffle_names_absent_lanes.cu").figures
    assert figure.rows
