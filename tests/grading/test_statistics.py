"""How often the judge of noise is wrong, measured on synthetic noise of the kinds that GPUs make."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpulab.grading.speed.benchmark import ROUNDS_PER_PLACE
from pytest_gpulab.grading.speed.statistics import (
    FIRST_ROUNDS,
    LOST_PER_SEEN,
    MAX_ROUNDS,
    MIN_KEPT,
    Ratio,
    Samples,
    _block_length,
    _medians,
    allowing_for,
    allowing_for_slowness,
    allowing_for_ticks,
    decide,
    kept_rounds,
    more_rounds,
    ratio_of_medians,
    settled,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("count", [1, 8, 15, 16, 2048])
def test_medians_of_resamples_are_numpys(count: int) -> None:
    rng = np.random.default_rng(count)
    samples, length = rng.integers(0, 2 * count, count) / 7, _block_length(count)  # some are equal
    starts = rng.integers(0, count, (50, -(-count // length)))
    drawn = ((starts[:, :, None] + np.arange(length)) % count).reshape(50, -1)[:, :count]
    assert (_medians(samples, starts) == np.median(samples[drawn], axis=1)).all()


BASELINE_MS, OWN_MS = 0.65, 0.175  # the naive reduction of 2^26 integers and one of its steps, on an H200
TRUE_RATIO = BASELINE_MS / OWN_MS
TRIALS = 50
Rng = np.random.Generator
Pair = tuple[Samples, Samples]


def quiet(rng: Rng, baseline_ms: float = BASELINE_MS, own_ms: float = OWN_MS) -> Pair:
    """Half a percent of noise."""
    spread = np.exp(0.005 * rng.standard_normal((2, MAX_ROUNDS)))
    return baseline_ms * spread[0], own_ms * spread[1]


def heavy_tails(rng: Rng) -> Pair:
    """Samples that are too long, without a finite variance."""
    baseline_ms, own_ms = quiet(rng)
    tails = 1 + 0.01 * np.abs(rng.standard_t(1.5, (2, MAX_ROUNDS)))
    return baseline_ms * tails[0], own_ms * tails[1]


def drift(rng: Rng) -> Pair:
    """A GPU that heats up and slows both down by 5 %."""
    baseline_ms, own_ms = quiet(rng)
    slower = np.linspace(1, 1.05, MAX_ROUNDS)
    return baseline_ms * slower, own_ms * slower


def two_clocks(rng: Rng) -> Pair:
    """A clock that jumps by 15 % every ten rounds or so."""
    baseline_ms, own_ms = quiet(rng)
    low = (np.cumsum(rng.random(MAX_ROUNDS) < 0.1) + rng.integers(2)) % 2
    return baseline_ms * (1 + 0.15 * low), own_ms * (1 + 0.15 * low)


def alike_neighbours(rng: Rng) -> Pair:
    """A slow wander of 0.8 % that strikes the baseline twice as hard: the ratio itself wanders."""
    baseline_ms, own_ms = quiet(rng)
    wander = np.zeros(MAX_ROUNDS)
    for index, step in enumerate(0.005 * rng.standard_normal(MAX_ROUNDS)):
        wander[index] = 0.8 * wander[index - 1] + step
    return baseline_ms * np.exp(wander), own_ms * np.exp(wander / 2)


def hammered(rng: Rng) -> Pair:
    """Another process that takes the GPU for 0.5 to 2 ms, most often in the middle of the longer kernel."""
    baseline_ms, own_ms = quiet(rng)
    for samples_ms in (baseline_ms, own_ms):
        samples_ms += (rng.random(MAX_ROUNDS) < samples_ms / 2) * rng.uniform(0.5, 2, MAX_ROUNDS)
    return baseline_ms, own_ms


def second_is_slower(rng: Rng) -> Pair:
    """Whichever of a round comes second takes 1 % longer."""
    baseline_ms, own_ms = quiet(rng)
    turn = np.arange(MAX_ROUNDS) % 2
    return baseline_ms * (1 + 0.01 * turn), own_ms * (1 + 0.01 * (1 - turn))


def misplaced(rng: Rng) -> Pair:
    """Arrays that move every few rounds, to where the faster kernel takes 0.6 % more or less."""
    baseline_ms, own_ms = quiet(rng)
    places = np.repeat(rng.standard_normal(MAX_ROUNDS // ROUNDS_PER_PLACE), ROUNDS_PER_PLACE)
    return baseline_ms, own_ms * np.exp(0.006 * places)


NOISES = (quiet, heavy_tails, drift, two_clocks, alike_neighbours, hammered, second_is_slower, misplaced)


class Looks:
    """The ratio of a pair after each number of rounds, as grading sees it; thresholds share them."""

    def __init__(self, pair: Pair, tick_ms: float = 0.0) -> None:
        self._pair, self._tick_ms = pair, tick_ms
        self._ratios: dict[int, Ratio] = {}

    def ratio(self, rounds: int) -> Ratio:
        if rounds not in self._ratios:
            baseline_ms, own_ms = (samples_ms[:rounds] for samples_ms in self._pair)
            kept = kept_rounds(baseline_ms, own_ms, np.zeros(rounds, bool))
            times = baseline_ms[kept], own_ms[kept]
            medians = map(float, map(np.median, times))
            self._ratios[rounds] = allowing_for_ticks(self._tick_ms, ratio_of_medians(*times), *medians)
        return self._ratios[rounds]

    def measured(self, threshold: float, most: int = MAX_ROUNDS) -> tuple[str, Ratio]:
        """Take rounds until the threshold is decided, as grading does, or until there are so many."""
        rounds, decision = 0, "undecided"
        while decision == "undecided" and rounds < most:
            rounds += more_rounds(rounds)
            decision = decide(self.ratio(rounds), threshold)
        return decision, self.ratio(rounds)


@cache
def trials(noise: Callable[[Rng], Pair]) -> list[Looks]:
    rng = np.random.default_rng(1)
    return [Looks(noise(rng)) for _ in range(TRIALS)]


def outcomes(noise: Callable[[Rng], Pair], offset: float) -> list[tuple[str, Ratio]]:
    most = MAX_ROUNDS if offset else MAX_ROUNDS // 4  # at the true ratio most measurements take as many as there are
    return [looks.measured(TRUE_RATIO * (1 + offset), most) for looks in trials(noise)]


@pytest.mark.parametrize("noise", NOISES)
def test_a_threshold_half_a_percent_away_is_hardly_ever_judged_wrongly(noise: Callable[[Rng], Pair]) -> None:
    """Not one wrong verdict in 100; they and what stays undecided are printed."""
    above = [decision for decision, _ in outcomes(noise, 0.005)]
    below = [decision for decision, _ in outcomes(noise, -0.005)]
    wrong = above.count("passed") + below.count("failed")
    undecided = above.count("undecided") + below.count("undecided")
    print(f"{noise.__name__}: {wrong} wrong and {undecided} undecided of {2 * TRIALS}")
    assert wrong == 0
    assert undecided <= 0.05 * 2 * TRIALS


@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_holds_the_truth_after_few_rounds(noise: Callable[[Rng], Pair]) -> None:
    """Half of 95 % would be a coin's work: of 200 first looks, at least 190 must hold the true ratio."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        baseline_ms, own_ms = (samples_ms[:FIRST_ROUNDS] for samples_ms in noise(rng))
        kept = kept_rounds(baseline_ms, own_ms, np.zeros(FIRST_ROUNDS, bool))
        ratio = ratio_of_medians(baseline_ms[kept], own_ms[kept])
        held += ratio.low <= TRUE_RATIO <= ratio.high
    print(f"{noise.__name__}: {held} of 200 intervals from {FIRST_ROUNDS} rounds hold the true ratio")
    assert held >= 190


@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_holds_the_truth_even_if_one_looks_until_it_does_not(noise: Callable[[Rng], Pair]) -> None:
    """A threshold at the true ratio keeps the rounds coming for as long as the interval holds it."""
    held = sum(ratio.low <= TRUE_RATIO <= ratio.high for _, ratio in outcomes(noise, 0.0))
    print(f"{noise.__name__}: {held} of {TRIALS} intervals hold the true ratio after repeated looks")
    assert held >= 0.9 * TRIALS


def test_a_kernel_is_not_faster_than_itself() -> None:
    rng = np.random.default_rng(3)
    results = [Looks(quiet(rng, OWN_MS, OWN_MS)).measured(1.02) for _ in range(100)]
    assert {decision for decision, _ in results} == {"failed"}
    assert sum(ratio.low <= 1 <= ratio.high for _, ratio in results) >= 95


def test_a_clear_case_takes_the_first_rounds_only() -> None:
    _, ratio = Looks(quiet(np.random.default_rng(4))).measured(TRUE_RATIO / 2)
    baseline_ms, own_ms = quiet(np.random.default_rng(4))
    assert ratio == ratio_of_medians(baseline_ms[:FIRST_ROUNDS], own_ms[:FIRST_ROUNDS])


def test_few_places_that_happen_to_be_alike_decide_nothing() -> None:
    """Four places of four rounds each, all by chance 0.6 % or so to one side: thresholds 0.5 % away stay open."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        baseline_ms, own_ms = (samples_ms[:FIRST_ROUNDS] for samples_ms in misplaced(rng))
        ratio = ratio_of_medians(baseline_ms, own_ms)
        wrong += decide(ratio, 0.995 * TRUE_RATIO) == "failed" or decide(ratio, 1.005 * TRUE_RATIO) == "passed"
    assert wrong == 0


def test_the_same_samples_give_the_same_interval_and_another_seed_a_similar_one() -> None:
    pair = quiet(np.random.default_rng(5))
    once, again, other = (ratio_of_medians(*pair, seed) for seed in (1, 1, 2))
    assert once == again != other
    assert (other.low, other.high) == pytest.approx((once.low, once.high), rel=1e-3)


def test_an_interval_decides_unless_the_threshold_lies_inside() -> None:
    ratio = Ratio(2.0, 1.9, 2.1)
    thresholds = (1.9, 1.95, 2.1, 2.11)
    assert [decide(ratio, threshold) for threshold in thresholds] == ["passed", "undecided", "undecided", "failed"]


def test_rounds_double_up_to_the_most() -> None:
    done = [0]
    while more_rounds(done[-1]):
        done.append(done[-1] + more_rounds(done[-1]))
    assert done == [0, 16, 32, 64, 128, 256, 512, 1024, 2048]


def test_rounds_that_were_held_down_or_interrupted_are_dropped() -> None:
    baseline_ms, own_ms, suspect = np.full(16, 3.0), np.full(16, 1.0), np.zeros(16, bool)
    baseline_ms[3], own_ms[5], suspect[7] = 5.0, 1.6, True
    assert np.flatnonzero(~kept_rounds(baseline_ms, own_ms, suspect)).tolist() == [3, 5, 7]


def test_a_submission_that_is_slow_by_itself_is_judged_by_all_of_its_rounds() -> None:
    rounds = np.arange(32)
    own_ms = np.where(rounds < 14, 2.0, 1.0)  # as if it left out half of its work in the others
    beside_nobody, beside_some, beside_more = (np.where(rounds // 14 == 1, 9.0, 3.0) for _ in range(3))
    beside_nobody[:], beside_some[19:], beside_more[20:] = 3.0, 3.0, 3.0
    kept = [kept_rounds(baseline_ms, own_ms, rounds < 0) for baseline_ms in (beside_nobody, beside_some, beside_more)]
    assert kept[0].all()
    assert np.flatnonzero(~kept[1]).tolist() == [14, 15, 16, 17, 18]  # others are there, but do not explain the rest
    assert np.flatnonzero(~kept[2]).tolist() == list(range(20))


RATIO = Ratio(3.0, 2.9, 3.1)


def test_without_interruptions_an_interval_stays_as_it_is() -> None:
    assert allowing_for(0.0, RATIO, 30.0, 10.0) == RATIO
    assert allowing_for(0.3, RATIO, 0.9, 0.3) == RATIO  # shorter than a process's turn on the GPU


def test_interruptions_of_long_kernels_widen_an_interval() -> None:
    """A process has the GPU for 2 ms at least, then others have it for a while."""
    found = allowing_for(0.5, RATIO, 7.5, 2.5)  # at most 4 and 2 interruptions, of which some is not seen
    lost_ms = LOST_PER_SEEN * 0.5
    expected = (3.0, 2.9 * (7.5 - 4 * lost_ms) / 7.5, 3.1 * 2.5 / (2.5 - 2 * lost_ms))
    assert (found.value, found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize(("seen_ms", "beside_ms"), [(2.40, 8.50), (0.98, 5.93)])
def test_an_interval_allows_for_interruptions_as_they_were_measured(seen_ms: float, beside_ms: float) -> None:
    """Times of a kernel of 3.777 ms on an H200, beside processes that launched only empty kernels, or hung."""
    seen = Ratio(beside_ms, beside_ms, beside_ms)
    assert allowing_for(seen_ms, seen, beside_ms, 1.0).low <= 3.777


def test_samples_shorter_than_an_interruption_contain_none() -> None:
    assert allowing_for(2.4, RATIO, 2.0, 1.2) == RATIO


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 2.1), st.floats(1, 100), st.floats(0.05, 20))
def test_an_interval_that_allows_for_interruptions_holds_the_truth(
    begun_ms: float, true_ms: float, away_ms: float
) -> None:
    """However much of a turn of 2.1 ms is over when a kernel begins, and however long the others have theirs."""
    seen_ms = true_ms + (begun_ms + true_ms) // 2.1 * away_ms
    assert allowing_for(away_ms, Ratio(seen_ms, seen_ms, seen_ms), seen_ms, 1.0).low <= true_ms * (1 + 1e-9)
    assert allowing_for(away_ms, Ratio(1 / seen_ms, 1 / seen_ms, 1 / seen_ms), 1.0, seen_ms).high >= 1 / true_ms * (
        1 - 1e-9
    )


@pytest.mark.parametrize("noise", [quiet, heavy_tails])
@pytest.mark.parametrize("tick_ms", [0.0005, 0.001024, 0.01])
def test_a_clock_with_ticks_judges_nothing_wrongly(noise: Callable[[Rng], Pair], tick_ms: float) -> None:
    """Of start and end only whole ticks are seen; so medians are whole ticks, however many rounds there are."""
    rng, wrong, undecided = np.random.default_rng(6), 0, 0
    for _ in range(TRIALS):
        pair = tuple(
            tick_ms * (np.floor(begun + samples_ms / tick_ms) - np.floor(begun))
            for samples_ms, begun in zip(noise(rng), rng.random((2, MAX_ROUNDS)), strict=True)
        )
        looks = Looks(pair, tick_ms)
        for offset, right in ((0.005, "failed"), (-0.005, "passed")):
            decision, _ = looks.measured(TRUE_RATIO * (1 + offset), MAX_ROUNDS // 8)
            wrong += decision not in (right, "undecided")
            undecided += decision == "undecided"
    print(f"{noise.__name__}, ticks of {tick_ms} ms: {wrong} wrong and {undecided} undecided of {2 * TRIALS}")
    assert wrong == 0


@given(
    speeds=st.lists(st.floats(0.05, 1), min_size=1),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_an_interval_that_allows_for_a_slow_clock_holds_the_ratio_at_full_speed(
    speeds: list[float], shares: tuple[float, float]
) -> None:
    """Of each kernel's time, some share is the clock's and the rest is the memory's."""
    baseline_ms, own_ms = (
        np.median([ms * (share / speed + 1 - share) for speed in speeds])
        for ms, share in zip((BASELINE_MS, OWN_MS), shares, strict=True)
    )
    slow = float(baseline_ms / own_ms)
    found = allowing_for_slowness(min(speeds), Ratio(slow, slow, slow))
    assert found.value == slow
    assert found.low <= TRUE_RATIO * (1 + 1e-9) and found.high >= TRUE_RATIO * (1 - 1e-9)


def test_at_full_speed_an_interval_stays_as_it_is() -> None:
    assert allowing_for_slowness(1.0, Ratio(4, 3.9, 4.1)) == Ratio(4, 3.9, 4.1)


def test_an_interval_that_allows_for_ticks_is_that_of_times_that_are_one_longer_and_shorter() -> None:
    found = allowing_for_ticks(0.1, RATIO, 3.0, 1.0)
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 2.9 * 2.9 / 3.0 / 1.1, 3.1 * 3.1 / 3.0 / 0.9))
    assert allowing_for_ticks(0.0, RATIO, 3.0, 1.0) == RATIO
    assert 0 < allowing_for_ticks(5.0, RATIO, 3.0, 1.0).low < allowing_for_ticks(5.0, RATIO, 3.0, 1.0).high < np.inf


def test_a_clock_state_is_no_interruption() -> None:
    samples_ms = np.tile([1.0, 1.15, 1.3], 6)
    assert kept_rounds(samples_ms, samples_ms, np.zeros(18, bool)).all()


def test_a_gpu_that_is_always_held_down_still_loses_what_was_interrupted() -> None:
    own_ms = np.ones(16)
    own_ms[2] = 9.0
    assert np.flatnonzero(~kept_rounds(np.ones(16), own_ms, np.ones(16, bool))).tolist() == [2]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dropping_never_leaves_too_few(data: st.DataObject) -> None:
    rounds = data.draw(st.integers(2, 40))
    times = st.lists(st.floats(1e-3, 1e3), min_size=rounds, max_size=rounds)
    suspect = data.draw(st.lists(st.booleans(), min_size=rounds, max_size=rounds))
    kept = kept_rounds(np.array(data.draw(times)), np.array(data.draw(times)), np.array(suspect))
    assert kept.sum() >= min(MIN_KEPT, rounds)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_an_interval_holds_its_figure_and_turns_with_the_roles(data: st.DataObject) -> None:
    times = st.lists(st.floats(1e-3, 1e3), min_size=17, max_size=17)
    baseline_ms, own_ms = np.array(data.draw(times)), np.array(data.draw(times))
    ratio, inverse = ratio_of_medians(baseline_ms, own_ms), ratio_of_medians(own_ms, baseline_ms)
    assert 0 < ratio.low <= ratio.value <= ratio.high < np.inf
    assert inverse.value == pytest.approx(1 / ratio.value)
    assert (inverse.low, inverse.high) == pytest.approx((1 / ratio.high, 1 / ratio.low))


def test_times_have_settled_once_they_fall_no_more() -> None:
    falling = np.geomspace(4.0, 1.0, 20)
    assert not settled(falling[:9])
    assert not settled(falling)
    assert settled(np.concatenate([falling, np.ones(10)]))
    assert settled(np.concatenate([falling, np.linspace(1.0, 1.1, 10)]))
