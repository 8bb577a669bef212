"""The figures of `uses` checks and their bounds, from counters that are given."""

from dataclasses import replace

import pytest

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Bound, ExerciseError, Problem, Usage
from pytest_gpulab.grading.usage.checks import _figure
from pytest_gpulab.grading.usage.used_reads import UsedReads

pytestmark = pytest.mark.unit

USAGE = Usage(
    {
        concepts.CONSTANT_REQUESTS: 40.0, concepts.CONSTANT_WORDS: 1280.0, concepts.WARPS: 10.0,
        concepts.SHARED_REQUESTS[0]: 30.0, concepts.SHARED_REQUESTS[1]: 10.0,
        concepts.BANK_CONFLICTS[0]: 60.0, concepts.BANK_CONFLICTS[1]: 20.0, concepts.BANK_CONFLICTS[2]: 10.0,
        concepts.GLOBAL_SECTORS[0]: 300.0, concepts.GLOBAL_SECTORS[1]: 100.0,
        concepts.GLOBAL_SECTORS[2]: 60.0, concepts.GLOBAL_SECTORS[3]: 40.0,
        concepts.INSTRUCTIONS: 100.0, concepts.WORKING_LANES: 1600.0,
        concepts.ADDITIONS[0]: 1000.0, concepts.ADDITIONS[1]: 500.0,
        concepts.ADDITIONS[2]: 800.0, concepts.ADDITIONS[3]: 700.0, concepts.ADDITIONS[4]: 1000.0,
        concepts.SHARED_ATOMICS: 5.0, concepts.ATOMIC_PASSES[0]: 500.0, concepts.ATOMIC_PASSES[1]: 2000.0,
        concepts.BARRIERS[0]: 40.0, concepts.BARRIERS[1]: 10.0,
    },
    {"paths.cuh": {concepts.INSTRUCTIONS: 10.0, concepts.WORKING_LANES: 40.0}},
    Problem(1000, {}),
    min_bytes=3200.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        (concepts.constant_reads(1), 4),
        (concepts.constant_broadcast(), 32),
        (concepts.bank_conflicts(0), 2),
        (concepts.bank_conflicts(0, accesses=1.28), 2.25),
        (concepts.global_traffic(1), 5),
        (concepts.shared_use(1), 4.5),
        (concepts.shared_reads(1), 3),
        (concepts.atomics(1), 0.5),
        (concepts.atomics(1, "shared"), 2),
        (concepts.working_lanes(32), 16),
        (concepts.working_lanes(32, "paths.cuh"), 4),
        (concepts.working_lanes(32, "other.cuh"), 0),
        (concepts.file_share(1, "paths.cuh"), 0.025),
        (concepts.file_share(1, "other.cuh"), 0),
        (concepts.instructions(1), 1.6),
        (concepts.additions(2), 4),
        (concepts.barriers(2), 5),
    ],
)
def test_the_usual_bounds_measure_their_concepts(bound: Bound, value: float) -> None:
    assert bound.measure(USAGE) == value


@pytest.mark.parametrize(("sharing", "value"), [(2.5, 20), (10, 5), (20, 5), (0, 5)])
def test_warps_without_barriers_do_not_lower_the_average(sharing: float, value: float) -> None:
    counters = {**USAGE.counters, concepts.WARPS_AT_BARRIERS: sharing}
    assert concepts.barriers(4).measure(replace(USAGE, counters=counters)) == value


@pytest.mark.parametrize(
    ("value", "limit", "said"),
    [(9.0, 4, "9"), (3.87, 28, "3.9"), (27.96, 28, "27.96"), (0.104, 0.1, "0.104"), (1234.5, 4, "1234"), (0.0, 3, "0")],
)
def test_a_figure_is_short_but_never_reads_as_its_bound(value: float, limit: float, said: str) -> None:
    assert _figure(value, Bound("per warp", lambda usage: value, at_most=limit)) == said


@pytest.mark.parametrize("bounds", [{}, {"at_most": 1, "at_least": 1}])
def test_a_bound_is_either_upper_or_lower(bounds: dict[str, float]) -> None:
    with pytest.raises(ExerciseError, match="needs either at_most or at_least"):
        Bound("barriers a warp", lambda usage: 0.0, **bounds)


def test_traffic_needs_a_minimum_to_compare_with() -> None:
    with pytest.raises(ExerciseError, match="global_traffic compares with the exercise's `min_bytes`: define it"):
        concepts.global_traffic(1).measure(replace(USAGE, min_bytes=None))


def test_scattered_atomics_take_a_pass_per_sector() -> None:
    scattered = {**USAGE.counters, concepts.GLOBAL_SECTORS[2]: 700.0, concepts.GLOBAL_SECTORS[3]: 300.0}
    assert concepts.atomics(1).measure(replace(USAGE, counters=scattered)) == 1


@pytest.mark.parametrize(("used", "counting"), [(12, 1), (6, 0.5), (4, 1 / 3), (3, 0), (0, 0)])
def test_reads_count_for_nothing_if_most_of_them_are_for_show(used: int, counting: float) -> None:
    assert UsedReads("constant", used, 12, 1.0).counting == counting
