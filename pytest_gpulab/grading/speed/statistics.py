"""Statistics of timed rounds: the ratio, its confidence interval and the decision, as pure functions of samples.

A round times the baseline and the submission once each, back to back, in an order that alternates between rounds. The
figure is the ratio of the two medians. The decision uses an interval around it, so that noise leads to more rounds and
finally to *inconclusive*, not to a wrong verdict.
"""

from dataclasses import dataclass
from math import isqrt, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from pytest_gpulab.devices.stopwatch import UNINTERRUPTED_MS

Samples = npt.NDArray[np.float64]
Decision = Literal["passed", "failed", "undecided"]

FIRST_ROUNDS, FEWEST_ROUNDS = 16, 4  # the latter for kernels of several seconds, if the time is up earlier
MAX_ROUNDS = 2048
# Percentiles of a bootstrapped median cover less than their nominal level: 90 % instead of 95 % from 16 rounds. They
# are also tested again after every doubling of the rounds. A nominal 99 % covers more than 95 % in spite of both.
NOMINAL_COVERAGE = 0.99
RESAMPLES = 1000
# A process that shares the GPU interrupts a sample for about 1 ms. Clocks vary less than this factor.
INTERRUPTED = 1.5
OWN_DOING = 1 / 4  # of the rounds: a submission that is slow so much more often than the baseline causes it itself
MIN_KEPT = 8  # with fewer, throttled rounds count, too
# The time slice of a process on a shared GPU (2.1 ms, H200).
SLICE_MS = 2.0
# Cost of an interruption over its observed length: context switches and cold caches (at most 10 %, H200).
LOST_PER_SEEN = 1.15
LEAST_SHARE = 0.01  # keeps divisions finite
SETTLED_OVER, SETTLED_WITHIN = 5, 0.02  # number of samples; relative change of their median


@dataclass(frozen=True)
class Ratio:
    """A speedup with its confidence interval, which covers the true value in at least 95 of 100 measurements."""

    value: float  # baseline over submission
    low: float  # lower end of the interval
    high: float  # upper end of the interval


def ratio_of_medians(baseline_ms: Samples, own_ms: Samples, seed: int = 0) -> Ratio:
    """Return the ratio of the medians, baseline over submission, of one sample per round; at least 2 rounds.

    The interval is from a moving-block bootstrap (Künsch 1989) over rounds. Blocks of neighbouring rounds are drawn,
    because drift and clock states correlate neighbours. A block has an even length, so that both orders have equal
    weight, and about as many rounds as there are blocks.
    """
    rounds = len(own_ms)
    blocks = -(-rounds // _block_length(rounds))
    starts = np.random.default_rng(seed).integers(0, rounds, (RESAMPLES, blocks))
    logs = np.log(_medians(baseline_ms, starts) / _medians(own_ms, starts))
    value = float(np.median(baseline_ms) / np.median(own_ms))
    tail = (1 - NOMINAL_COVERAGE) / 2
    wider = _widening(rounds // _block_length(rounds))
    low, high = value * np.exp(wider * (np.quantile(logs, (tail, 1 - tail)) - np.log(value)))
    return Ratio(value, min(float(low), value), max(float(high), value))


def _medians(samples: Samples, starts: npt.NDArray[np.int64]) -> Samples:
    """Return the median of each resample: a row of the starts of blocks, which wrap around at the end.

    The GPU lock is held meanwhile. NumPy selects one place of 32-bit numbers several times faster than two places, or
    than other numbers.
    """
    rounds = len(samples)
    length, order, middle = _block_length(rounds), np.argsort(samples), rounds // 2
    ranks = np.empty(rounds, np.uint32)
    ranks[order] = np.arange(rounds)
    blocks = sliding_window_view(np.concatenate((ranks, ranks[:length])), length)
    parts = np.partition(blocks[starts].reshape(len(starts), -1)[:, :rounds], middle, axis=1)
    upper = parts[:, middle]
    lower = upper if rounds % 2 else parts[:, :middle].max(axis=1)
    medians: Samples = samples[order][np.stack((lower, upper), axis=1)].mean(axis=1)
    return medians


def _block_length(rounds: int) -> int:
    return 2 * max(1, isqrt(rounds) // 2)


def _widening(blocks: int) -> float:
    """Return the factor that widens the interval for a small number of blocks.

    A bootstrap uses the spread of its sample as the true one, like the normal quantile. Student's quantile, and n - 1
    instead of n, correct that. Source of the expansion: Abramowitz and Stegun, 26.7.5.
    """
    z, freedom = NormalDist().inv_cdf((1 + NOMINAL_COVERAGE) / 2), max(blocks - 1, 1)
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    student += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return student / z * sqrt((freedom + 1) / freedom)


def decide(ratio: Ratio, threshold: float) -> Decision:
    """Return the decision on a threshold: undecided if the interval contains it."""
    if ratio.low >= threshold:
        return "passed"
    return "failed" if ratio.high < threshold else "undecided"


def more_rounds(done: int) -> int:
    """Return the number of rounds to add while undecided: it doubles the total up to `MAX_ROUNDS`, then 0."""
    return max(0, min(done or FIRST_ROUNDS, MAX_ROUNDS - done))


def kept_rounds(baseline_ms: Samples, own_ms: Samples, suspect: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask of rounds that count: without interrupted samples and without throttling.

    Interruptions hit both sides. A submission that is often slow on its own, such as one that skips work at random,
    keeps all of its rounds: otherwise only its fast rounds would count.

    If fewer than `MIN_KEPT` remain, `suspect` rounds with throttling count, too: a GPU that always throttles has no
    better figure, and both kernels suffer alike. For other processes see `allowing_for`. If still fewer remain, the
    least disturbed rounds count.
    """
    excess, own = _excess(baseline_ms), _excess(own_ms)
    if np.sum(own > INTERRUPTED) <= np.sum(excess > INTERRUPTED) + OWN_DOING * len(own):
        excess = np.maximum(excess, own)
    whole = excess <= INTERRUPTED
    for kept in (whole & ~suspect, whole):
        if kept.sum() >= MIN_KEPT:
            return kept
    least = np.zeros_like(whole)
    least[np.argsort(excess, kind="stable")[:MIN_KEPT]] = True
    return least


def allowing_for(interruption_ms: float, ratio: Ratio, baseline_ms: float, own_ms: float) -> Ratio:
    """Return the ratio of two median times with an interval that also covers its value without interruptions."""
    low = ratio.low * _uninterrupted_share(baseline_ms, interruption_ms)
    return Ratio(ratio.value, low, ratio.high / _uninterrupted_share(own_ms, interruption_ms))


def allowing_for_slowness(speed: float, ratio: Ratio) -> Ratio:
    """Return the ratio with an interval that also covers its value at the full clock.

    A slower clock lengthens a kernel at most in proportion, and not at all if only memory limits it. `speed` is the
    slowest clock of all samples over the full one.
    """
    share = max(speed, LEAST_SHARE)
    return Ratio(ratio.value, ratio.low * share, ratio.high / share)


def allowing_for_ticks(tick_ms: float, ratio: Ratio, baseline_ms: float, own_ms: float) -> Ratio:
    """Return the ratio of two median times with an interval that also covers the resolution of the clock, in ms.

    The median of whole ticks is a whole tick, however many rounds there are.
    """
    baseline_share, own_share = tick_ms / baseline_ms, tick_ms / own_ms
    low = max(1 - baseline_share, LEAST_SHARE) / (1 + own_share)
    high = (1 + baseline_share) / max(1 - own_share, LEAST_SHARE)
    return Ratio(ratio.value, ratio.low * low, ratio.high * high)


def _uninterrupted_share(elapsed_ms: float, interruption_ms: float) -> float:
    """Return the smallest share of a time that remains without the interruptions that fit into it."""
    if elapsed_ms <= UNINTERRUPTED_MS or not interruption_ms:
        return 1.0
    often = min(elapsed_ms // interruption_ms, elapsed_ms // (SLICE_MS + interruption_ms) + 1)
    return max(1 - often * LOST_PER_SEEN * interruption_ms / elapsed_ms, LEAST_SHARE)


def _excess(samples_ms: Samples) -> Samples:
    """Return each sample over the lower quartile, which stands for undisturbed samples."""
    times: Samples = samples_ms / np.quantile(samples_ms, 0.25)
    return times


def settled(samples_ms: Samples) -> bool:
    """Return whether times no longer fall, as they do while the clock rises."""
    if len(samples_ms) < 2 * SETTLED_OVER:
        return False
    before, latest = samples_ms[-2 * SETTLED_OVER : -SETTLED_OVER], samples_ms[-SETTLED_OVER:]
    return bool(np.median(latest) >= (1 - SETTLED_WITHIN) * np.median(before))
