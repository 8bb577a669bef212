"""Where threads stop in a figure: barriers that others do not reach, and faults that end the launch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.correctness.requests import Request
from pytest_gpulab.grading.explanation.drawing import Drawn, Subject, drawn
from pytest_gpulab.grading.explanation.stops import _threads
from pytest_gpulab.grading.smallest_failing import smallest_failing
from pytest_gpulab.reports.pages.explained_page import summary_lines

ROOT = Path(__file__).resolve().parents[2]
DEVICE = open_device("sim")[0]


def draw(file: Path, request: Request | None = None) -> Drawn:
    loaded = Catalogue(ROOT / "exercises").load(file.parent.name)
    return drawn(Subject(loaded, file, DEVICE, 20, smallest_failing), request or Request())


@cache
def draw_wrong(name: str) -> Drawn:
    """Draw a kernel of tests/wrong once for all tests: it searches the smallest failing input."""
    return draw(ROOT / f"tests/wrong/{name}.cu")


MISSED = {
    "reduction/barrier_in_thread_loop": (
        3,
        "tile, step 2, stride = 8",
        ["threads 8 to 31 do not reach the barrier in line 16"],
    ),
    "reduction/returns_then_writes_beyond": (
        2,
        "tile, step 0",
        ["threads 1 to 31 do not reach the barrier in line 14"],
    ),
    "reduction/barrier_counts_too_few": (
        1,
        "tile, step 0",
        ["the barrier in line 12 expects 64 threads, but more arrive"],
    ),
    "reduction/barrier_for_each_warp": (
        1,
        "tile, step 0",
        ["the barrier in line 8 waits for more threads, and no other thread arrives"],
    ),
}


@pytest.mark.parametrize("name", MISSED)
def test_a_barrier_that_not_all_threads_reach_is_marked_at_its_step(name: str) -> None:
    (figure,) = draw(ROOT / f"tests/wrong/{name}.cu", Request("", (1,), {"in": "0"})).figures
    row, caption, words = MISSED[name]
    assert figure.captions[row] == caption
    assert [stop.what for stop in figure.stops(row)] == words == figure.mistakes(row)[-1:]


def test_many_threads_that_do_not_reach_a_barrier_are_few_words() -> None:
    assert _threads([7]) == "thread 7"
    assert _threads([0, 1, 4, 5, 6]) == "threads 0, 1, 4 to 6"
    assert _threads(range(0, 256, 2)) == "threads 0, 2, 4, 6 and 124 more"


STOPPED = {
    "reduction/step_times_one": ["threads 0 to 31 never leave the loop in line 14: this loop changes nothing"],
    "constant_memory/endless_loop": [
        "threads 0 to 4, 16 to 20, 32 to 36 were still in the loop in line 23 at the time limit"
    ],
    "scan/endless_look_back": [  # in the 257th block
        "threads 0 to 31 never leave the loop in line 27: it waits for a change that no thread makes"
    ],
    "divergence/endless_loop": ["thread 0 never leaves the loop in line 10: this loop changes nothing"],
    "reduction/barrier_for_one_thread_more": ["threads 0 to 31 wait at the mbarrier in line 19 for ever"],
    "reduction/one_more_than_its_own_array_holds": [
        "line 13, first by thread 0: invalid __local__ write of size 4 bytes: just past the end of a thread's own 16 "
        "bytes"
    ],
    "reduction/array_of_each_thread": [
        "line 15, first by thread 0: uninitialized __local__ memory read of size 4 bytes"
    ],
    "reduction/traps_at_one_size": ["line 11, first by thread 0: the kernel stopped itself with __trap()"],
    "scan/waits_by_block_index": [
        "line 23, first by thread 0: the kernel waits for a block that has not started; CUDA starts blocks in any order"
    ],
}


@pytest.mark.parametrize("name", STOPPED)
def test_the_end_of_a_launch_is_marked_below_the_last_row(name: str) -> None:
    figure = next(figure for figure in draw_wrong(name).figures if figure.has_marks)
    stops = figure.stops(len(figure.rows) - 1)
    assert [stop.what for stop in stops] == STOPPED[name]
    of_rows = [x + 16 * y for y in range(3) for x in range(5)]
    assert all(list(stop.threads) in ([], [0], list(range(32)), of_rows) for stop in stops)


def test_a_loop_without_end_is_drawn_until_it_repeats() -> None:
    (figure,) = draw_wrong("reduction/step_times_one").figures
    assert figure.captions[1:] == ("tile, step 0", "tile, step 1, step = 1", "tile, step 2, step = 1")


def test_blocks_that_have_not_begun_at_a_fault_have_no_figure() -> None:
    figures = draw_wrong("scan/waits_by_block_index").figures
    assert [figure.title for figure in figures] == ["scan_single_pass, block 1 of 2"]
    status = next(each for each in figures[0].accesses if each.line == 23)  # all lanes read one element
    assert (status.cost, status.best) == (1, 1)


def test_a_mistake_of_several_steps_is_listed_once() -> None:
    (figure,) = draw_wrong("reduction/barrier_counts_too_few").figures
    race, barrier = figure.all_mistakes
    assert race.startswith("race of threads 0 and 64")
    assert barrier == "the barrier in line 12 expects 64 threads, but more arrive"


LONG = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    volatile GPULAB_T sum = 0;
    for (unsigned k = threadIdx.x; k < 4000000000u; ++k)
        sum = sum + in[k % n];
    out[blockIdx.x] = sum;
}
"""


def test_threads_in_a_loop_at_the_time_limit_are_marked(tmp_path: Path) -> None:
    file = tmp_path / "reduction" / "reduction.cu"
    file.parent.mkdir()
    file.write_text(LONG)
    (figure,) = draw(file).figures
    assert "    ! threads 0 to 31 were still in the loop in line 6 at the time limit" in summary_lines([figure])
