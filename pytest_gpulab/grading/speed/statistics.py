"""From timed rounds to a verdict on a ratio: pure functions of samples, and the only place that judges noise.

A round times the baseline and the submission once each, one right after the other, in an order that alternates from
round to round. The figure is the ratio of the two medians; what is judged is an interval around it, so that noise leads
to more rounds and at last to *inconclusive*, not to a wrong verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.stopwatch import UNINTERRUPTED_MS

Samples = npt.NDArray[np.float64]
Decision = Literal["passed", "failed", "undecided"]

FIRST_ROUNDS, FEWEST_ROUNDS = 16, 4  # the latter of kernels that take seconds, if the time is up before
MAX_ROUNDS = 2048
# Percentiles of a bootstrapped median cover less than they say: from 16 rounds, those of 95 % cover 90 %. They are also
# looked at again after every doubling of the rounds. Those of 99 % cover more than 95 % in all of that.
NOMINAL_COVERAGE = 0.99
RESAMPLES = 1000
# A process that shares the GPU takes it for a millisecond or so in between. Clocks do not vary by so much.
INTERRUPTED = 1.5
OWN_DOING = 1 / 4  # of the rounds: what is slow so much more often than the baseline is not so because of others
MIN_KEPT = 8
# A GPU turns to other processes that want something after it has worked for one through so long (2.1 ms, H200).
SLICE_MS = 2.0
# What an interruption takes, over what is seen of it: switching to and fro, cold caches (a tenth at most, H200).
LOST_PER_SEEN = 1.15
LEAST_SHARE = 0.01
SETTLED_OVER, SETTLED_WITHIN = 5, 0.02


@dataclass(frozen=True)
class Ratio:
    """A speedup and the interval that holds the true one in at least 95 of 100 measurements.

    Attributes:
        value: baseline over submission.
        low, high: the interval's ends.
    """

    value: float
    low: float
    high: float


def ratio_of_medians(baseline_ms: Samples, own_ms: Samples, seed: int = 0) -> Ratio:
    """Return how many times longer the baseline takes.

    The interval is a moving-block bootstrap's (Künsch 1989) over rounds: whole stretches of neighbouring rounds are
    drawn, because drift and clock states make neighbours alike. Stretches are of even length, so that both orders
    weigh the same, and about as long as there are stretches.

    Args:
        baseline_ms, own_ms: one sample a round each, in the order in which they were taken; two rounds or more.
        seed: of the drawing.
    """
    rounds = len(own_ms)
    drawn = _stretches(rounds, np.random.default_rng(seed))
    logs = np.log(_medians(baseline_ms[drawn]) / _medians(own_ms[drawn]))
    value = float(np.median(baseline_ms) / np.median(own_ms))
    tail = (1 - NOMINAL_COVERAGE) / 2
    wider = _widening(rounds // _stretch_length(rounds))
    low, high = value * np.exp(wider * (np.quantile(logs, (tail, 1 - tail)) - np.log(value)))
    return Ratio(value, min(float(low), value), max(float(high), value))


def _medians(rows: Samples) -> Samples:
    """Return each row's: sorting takes half of what `np.median` does, or less, and others wait for the GPU."""
    ordered = np.sort(rows, axis=1)
    count = rows.shape[1]
    medians: Samples = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return medians


def _stretches(rounds: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the indices of `RESAMPLES` series, one a row, each made of stretches that may run past the end."""
    length = _stretch_length(rounds)
    starts = rng.integers(0, rounds, (RESAMPLES, -(-rounds // length)))
    indices = (starts[:, :, None] + np.arange(length)) % rounds
    return indices.reshape(RESAMPLES, -1)[:, :rounds]


def _stretch_length(rounds: int) -> int:
    return 2 * max(1, isqrt(rounds) // 2)


def _widening(stretches: int) -> float:
    """Return how much wider an interval must be because so few stretches may happen to be alike.

    A bootstrap takes the spread of its sample for the true one, as the normal quantile does. Student's quantile, and
    n - 1 instead of n, make up for that. Source of the expansion: Abramowitz and Stegun, 26.7.5.
    """
    z, freedom = NormalDist().inv_cdf((1 + NOMINAL_COVERAGE) / 2), max(stretches - 1, 1)
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    student += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return student / z * sqrt((freedom + 1) / freedom)


def decide(ratio: Ratio, threshold: float) -> Decision:
    """Return what an interval says of a threshold: undecided while it lies inside."""
    if ratio.low >= threshold:
        return "passed"
    return "failed" if ratio.high < threshold else "undecided"


def more_rounds(done: int) -> int:
    """Return how many rounds to add while undecided: as many as there are, up to `MAX_ROUNDS`; 0 ends it."""
    return max(0, min(done or FIRST_ROUNDS, MAX_ROUNDS - done))


def kept_rounds(baseline_ms: Samples, own_ms: Samples, suspect: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which rounds to judge: not those in which a sample was interrupted or the GPU was held down.

    Others interrupt both sides. A submission that is slow now and then all by itself, such as one that leaves out work
    at random, is judged by all of its rounds: else only those in which it was fast would count.

    Where that leaves fewer than `MIN_KEPT`, those that were held down are kept: a GPU that always is has no better
    figure, and both kernels suffer alike; for others' work see `allowing_for`. Where it still leaves fewer, the least
    disturbed rounds are.

    Args:
        baseline_ms, own_ms: as in `ratio_of_medians`.
        suspect: whether the GPU was held down, or others worked on it, during the round.
    """
    disturbance, own = _disturbance(baseline_ms), _disturbance(own_ms)
    if np.sum(own > INTERRUPTED) <= np.sum(disturbance > INTERRUPTED) + OWN_DOING * len(own):
        disturbance = np.maximum(disturbance, own)
    whole = disturbance <= INTERRUPTED
    for kept in (whole & ~suspect, whole):
        if kept.sum() >= MIN_KEPT:
            return kept
    least = np.zeros_like(whole)
    least[np.argsort(disturbance, kind="stable")[:MIN_KEPT]] = True
    return least


def allowing_for(interruption_ms: float, ratio: Ratio, baseline_ms: float, own_ms: float) -> Ratio:
    """Return the ratio with an interval that also holds what it would be if others had not interrupted the samples.

    Args:
        interruption_ms: the longest, as it is seen.
        ratio: of the two times.
        baseline_ms, own_ms: medians of samples, with the interruptions in them.
    """
    low = ratio.low * _uninterrupted_share(baseline_ms, interruption_ms)
    return Ratio(ratio.value, low, ratio.high / _uninterrupted_share(own_ms, interruption_ms))


def allowing_for_slowness(speed: float, ratio: Ratio) -> Ratio:
    """Return the ratio with an interval that also holds what it would be at full speed.

    A slower clock makes a kernel longer in proportion at most, and not at all if it waits for memory only.

    Args:
        speed: the slowest clock of all samples, over the full one.
        ratio: of times at such clocks.
    """
    share = max(speed, LEAST_SHARE)
    return Ratio(ratio.value, ratio.low * share, ratio.high / share)


def allowing_for_ticks(tick_ms: float, ratio: Ratio, baseline_ms: float, own_ms: float) -> Ratio:
    """Return the ratio with an interval that also holds what it would be if the clock had no ticks.

    The median of whole ticks is a whole tick: no number of rounds tells what lies between.

    Args:
        tick_ms: of the clock.
        ratio: of the two times.
        baseline_ms, own_ms: medians of samples.
    """
    baseline_share, own_share = tick_ms / baseline_ms, tick_ms / own_ms
    low = max(1 - baseline_share, LEAST_SHARE) / (1 + own_share)
    high = (1 + baseline_share) / max(1 - own_share, LEAST_SHARE)
    return Ratio(ratio.value, ratio.low * low, ratio.high * high)


def _uninterrupted_share(elapsed_ms: float, interruption_ms: float) -> float:
    """Return which share of a time is left, at least, without the interruptions that it has room for."""
    if elapsed_ms <= UNINTERRUPTED_MS or not interruption_ms:
        return 1.0
    often = min(elapsed_ms // interruption_ms, elapsed_ms // (SLICE_MS + interruption_ms) + 1)
    return max(1 - often * LOST_PER_SEEN * interruption_ms / elapsed_ms, LEAST_SHARE)


def _disturbance(samples_ms: Samples) -> Samples:
    """Return how many times longer each sample is than the lower quartile, which stands for undisturbed ones."""
    times: Samples = samples_ms / np.quantile(samples_ms, 0.25)
    return times


def settled(samples_ms: Samples) -> bool:
    """Return whether times have stopped falling, as they do while a clock goes up."""
    if len(samples_ms) < 2 * SETTLED_OVER:
        return False
    before, latest = samples_ms[-2 * SETTLED_OVER : -SETTLED_OVER], samples_ms[-SETTLED_OVER:]
    return bool(np.median(latest) >= (1 - SETTLED_WITHIN) * np.median(before))
