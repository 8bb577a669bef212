"""Time a submission against its baseline until noise cannot turn the verdict, or the time for it is up.

Rounds are added in doubling numbers; `statistics` says when it is enough. Both sides are timed the same way: cold, with
nothing in the level-2 cache, or, where one of them is short and both touch little memory, in batches with warm caches,
because what surrounds a single short launch would outweigh it.

A sitting, for which the GPU is held, may be over after less than a tenth of a second, and what disturbs one side all
that time looks like the truth: another process may take memory bandwidth from one side and not hold up the other. So
before a submission loses points by little, and for a calibration, the GPU is given back, and some time later there is a
second sitting. It never takes what the first one gave.

What others interrupt so often that nothing can be told is forgotten, and tried again as soon as they may have ended: a
kernel that hangs is stopped after a while, and those of another one's submission must not decide about this one. What
disturbs rounds, and which had better not count, is the business of `disturbances`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pytest_gpulab.devices.stopwatch import SLOW_CLOCK_SHARE, Stopwatch, TimingDevice

from .buffers import BufferPool
from .interference import FullSpeed, ThrottleMonitor
from .mixing import Mix
from .statistics import (
    FEWEST_ROUNDS,
    Ratio,
    Samples,
    allowing_for,
    allowing_for_slowness,
    allowing_for_ticks,
    decide,
    kept_rounds,
    more_rounds,
    ratio_of_medians,
    settled,
)
from .targets import REPLICAS, BenchmarkTarget
from .validation import SETS, CheckedRun, CheckedRuns

Caches = Literal["cold", "warm"]

BATCHED_BELOW_MS = 0.05
BUDGET_S = 6.0
WARM_UP_ROUNDS = 2  # at least one with each set of contents
WARM_UP_S = 0.005  # the clock of a GPU that was at work just now is up at once
MAX_WARM_UP_S = 0.5
FULL_CLOCK_SHARE = 0.9
ROUNDS_PER_LOOK = 8  # between two looks at the GPU's clocks
ROUNDS_PER_PLACE = 4  # between two moves of the arrays; no longer than a stretch of `statistics`
MIN_MS = 1e-5  # no sample is zero
HELD_DOWN_ROUNDS = 64  # until rounds count in which the GPU was held down, if there are no better
CALIBRATING_ROUNDS = 256  # where the ratio itself is asked for
SITTINGS = 2
BY_LITTLE = 2 / 3  # of the threshold: nothing that goes unnoticed is known to change a ratio by more
PAUSE_S = 0.25  # between them
INTERRUPTED_PAUSE_S = 1.0  # until what others spoil is tried again
INTERRUPTED_WAIT_S = 60.0  # so long altogether: several kernels may hang, each for ten seconds, one after the other
LONG_S = 1.0  # a sitting that took so long needs no other


@dataclass(frozen=True)
class RaceResult:
    """What a race showed.

    Attributes:
        ratio: baseline over submission.
        baseline_ms, own_ms: medians of the rounds that count.
        rounds: taken.
        dropped: of those, because they were disturbed.
        caches: what the runs found in the level-2 cache.
        checked: some of its timed runs, with what they wrote.
        peak_bandwidth_gb_s: of device memory; 0 where it is not known.
        l2_bytes: of what it writes, a run may leave so much in the cache.
        interruption_ms: how long others held the GPU at one time, if rounds that they disturbed count because there
            are no better.
        held_down_by: what held the GPU down in rounds that count because there are no better, in words.
        others: other processes seen on the GPU just after a sitting.
    """

    ratio: Ratio
    baseline_ms: float
    own_ms: float
    rounds: int
    dropped: int
    caches: Caches
    checked: tuple[CheckedRun, ...]
    peak_bandwidth_gb_s: float
    l2_bytes: int
    interruption_ms: float = 0.0
    held_down_by: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def floor_ms(self, least_bytes: float, written_bytes: int) -> float:
        """Return the shortest time in which so many bytes can come from or go to memory.

        What is written may stay in the level-2 cache as far as it has room, what is read is not there before. With warm
        caches nothing can be said, nor of a memory whose bandwidth is not known.

        Args:
            least_bytes: that must be read or written.
            written_bytes: how many of them are written.
        """
        if self.caches == "warm" or not self.peak_bandwidth_gb_s:
            return 0.0
        moved = max(0.0, least_bytes - min(self.l2_bytes, written_bytes))
        return moved / (self.peak_bandwidth_gb_s * 1e9) * 1e3


@dataclass
class RetryBudget:
    """What the races of a submission share.

    Attributes:
        left_s: how long they may go on waiting, altogether, for others to end what spoils them.
        full_speed: what they have learnt of the GPU's.
    """

    left_s: float = field(default_factory=lambda: INTERRUPTED_WAIT_S)
    full_speed: FullSpeed = field(default_factory=FullSpeed)


def _of_both(first: RaceResult, both: RaceResult, thresholds: Sequence[float]) -> RaceResult:
    """Return what both sittings show together, or the first alone if that reached what both do not."""
    if any(decide(both.ratio, threshold) == "failed" != decide(first.ratio, threshold) for threshold in thresholds):
        return replace(first, checked=both.checked)
    return both


class Benchmark:
    """A submission against its baseline.

    Args:
        pool: of both.
        baseline, own: the sides.
        thresholds: rounds are added as long as one of them is undecided; None where the ratio itself is asked for.
        is_mixable: whether a stretch of an input may be replaced by the same stretch of another one.
        rng: chooses the runs that are checked, mixes and moves the arrays, and draws for the interval.
    """

    def __init__(
        self,
        pool: BufferPool,
        baseline: BenchmarkTarget,
        own: BenchmarkTarget,
        thresholds: Sequence[float] | None,
        is_mixable: bool,
        rng: np.random.Generator,
    ) -> None:
        self._pool, self._baseline, self._own, self._rng = pool, baseline, own, rng
        self._thresholds, self._is_mixable = thresholds, is_mixable
        self._watch: Stopwatch
        self._sittings, self._spent_s, self._seed = 0, 0.0, int(rng.integers(2**32))
        self._batched, self._copies = False, REPLICAS
        self._baseline_ms: list[float] = []  # with what surrounds the launches: how much that is shows in the end
        self._own_ms: list[float] = []
        self._settled = 0  # rounds of earlier sittings, without it
        self._looks: ThrottleMonitor
        self._checked = CheckedRuns(own, rng)
        self._forgotten = 0
        self._others: dict[str, None] = {}

    def run(self, device: TimingDevice, retry_budget: RetryBudget) -> RaceResult:
        """Time both sides in alternating order on the device that holds them, once.

        Args:
            device: see there.
            retry_budget: of which it takes what it needs, and to which it adds what it learns.

        Raises:
            BaselineFailed: a launch of the baseline ends abnormally, if it is a `Baseline`.
            DeviceError: a launch ends abnormally, or others do not give the GPU back.
        """
        self._looks = ThrottleMonitor(retry_budget.full_speed)
        result = self._sitting(device)
        while self._is_spoilt(result) and retry_budget.left_s > 0:
            begin_s = time.monotonic()
            time.sleep(INTERRUPTED_PAUSE_S)
            self._forget()
            result = self._sitting(device, in_silence=True)
            retry_budget.left_s -= time.monotonic() - begin_s
        if self._is_doubtful(result):
            time.sleep(PAUSE_S)
            result = _of_both(result, self._sitting(device), self._thresholds or ())
        return replace(result, others=tuple(self._others))

    def _sitting(self, device: TimingDevice, in_silence: bool = False) -> RaceResult:
        with device.stopwatch(in_silence) as watch:
            result = self._sit(watch)
        self._others |= dict.fromkeys(watch.others())  # which takes a while: others may time meanwhile
        return result

    def _sit(self, watch: Stopwatch) -> RaceResult:
        """Take rounds until they are enough, or the time is up, and judge all that were taken until now.

        In a second sitting these are as many as in the first, at least.
        """
        if self._rounds:
            self._settle()
        self._watch, self._sittings = watch, self._sittings + 1
        self._looks.begin()
        self._warm_up()
        while True:
            begin_s = time.perf_counter()
            self._add(more_rounds(self._rounds))
            result = self._result()
            self._spent_s += time.perf_counter() - begin_s
            # The rounds to add are as many as all those before, so they take as long again.
            out_of_time = 2 * self._spent_s > BUDGET_S
            is_hopeless = self._is_spoilt(result) and bool(self._looks.suspect().all())
            if self._is_enough(result) or is_hopeless or out_of_time or not more_rounds(self._rounds):
                return result

    def _is_doubtful(self, result: RaceResult) -> bool:
        """Say whether there should be another sitting."""
        if self._thresholds is None:
            return True
        if self._spent_s >= LONG_S or not more_rounds(self._rounds):
            return False
        return any(
            decide(result.ratio, threshold) == "failed" and result.ratio.high >= BY_LITTLE * threshold
            for threshold in self._thresholds
        )

    def _is_spoilt(self, result: RaceResult) -> bool:
        """Say whether nothing can be told because of what others did."""
        return result.interruption_ms > 0 and not self._is_decided(result)

    def _forget(self) -> None:
        self._forgotten += self._rounds
        self._baseline_ms.clear()
        self._own_ms.clear()
        self._looks.forget()
        self._sittings, self._spent_s = 0, 0.0

    def _is_enough(self, result: RaceResult) -> bool:
        if result.held_down_by and self._rounds < HELD_DOWN_ROUNDS:
            return False
        if self._thresholds is None:
            return SITTINGS * self._rounds >= self._sittings * CALIBRATING_ROUNDS
        return self._is_decided(result)

    def _is_decided(self, result: RaceResult) -> bool:
        """Say whether there are thresholds, and all verdicts are certain."""
        thresholds = self._thresholds
        return thresholds is not None and all(decide(result.ratio, least) != "undecided" for least in thresholds)

    def _warm_up(self) -> None:
        """Run both until the clock is up, and decide from their times how to time them, in the first sitting.

        They meet contents of every set: who keeps answers to what looks alike keeps a wrong one for what is checked.
        """
        begin_s = time.perf_counter()
        baseline_ms: list[float] = []
        own_ms: list[float] = []
        while len(own_ms) < WARM_UP_ROUNDS or self._is_cold(time.perf_counter() - begin_s, own_ms):
            copy, mix = len(own_ms) % REPLICAS, self._mix(len(own_ms) % SETS)
            baseline_ms.append(self._baseline.cold_ms(self._watch, copy, mix))
            own_ms.append(self._own.cold_ms(self._watch, copy, mix))
        self._watch.calibrate()
        sides = ((self._baseline, baseline_ms), (self._own, own_ms))
        shortest_ms = min(np.median(samples_ms) - side.overhead_ms(self._watch) for side, samples_ms in sides)
        if not self._rounds and shortest_ms < BATCHED_BELOW_MS:
            size = min(side.batch_size(self._watch.l2_bytes) for side in (self._baseline, self._own))
            if size >= REPLICAS:
                self._batched, self._copies = True, size

    @property
    def _runs(self) -> int:
        """How many there are in a sample."""
        return self._copies if self._batched else 1

    @property
    def _rounds(self) -> int:
        return len(self._own_ms)

    def _add(self, rounds: int) -> None:
        """Take so many rounds, or fewer if the time is up before, with a look at the GPU every few."""
        self._looks.latest(self._watch)  # unless one while warming up was just before
        bases, end = self._checked.choose(self._rounds, rounds), self._rounds + rounds
        until_s = time.perf_counter() + BUDGET_S - self._spent_s
        while self._rounds < end:
            first = self._rounds
            for turn in range(first, min(first + ROUNDS_PER_LOOK, end)):
                if (turn - first) % ROUNDS_PER_PLACE == 0:
                    self._move()
                self._round(turn, bases.get(turn))
                if self._rounds >= FEWEST_ROUNDS and time.perf_counter() > until_s:
                    end = self._rounds
                    break
            self._looks.add(self._watch, self._rounds - first)
            self._watch.calibrate(briefly=True)

    def _result(self) -> RaceResult:
        baseline_ms = self._without_overhead(self._baseline, self._baseline_ms)
        own_ms = self._without_overhead(self._own, self._own_ms)
        kept = kept_rounds(baseline_ms, own_ms, self._looks.suspect())
        ratio = ratio_of_medians(baseline_ms[kept], own_ms[kept], self._seed)
        medians_ms = float(np.median(baseline_ms[kept])), float(np.median(own_ms[kept]))
        disturbance = self._looks.of(kept)
        samples_ms = [self._runs * median_ms for median_ms in medians_ms]
        ratio = allowing_for_ticks(self._watch.tick_ms, ratio, *samples_ms)
        ratio = allowing_for_slowness(disturbance.speed, ratio)
        return RaceResult(
            ratio=allowing_for(disturbance.interruption_ms, ratio, *samples_ms),
            baseline_ms=medians_ms[0],
            own_ms=medians_ms[1],
            rounds=self._forgotten + len(kept),
            dropped=self._forgotten + int((~kept).sum()),
            caches="warm" if self._batched else "cold",
            checked=self._checked.kept,
            peak_bandwidth_gb_s=self._watch.peak_bandwidth_gb_s,
            l2_bytes=self._watch.l2_bytes,
            interruption_ms=disturbance.interruption_ms,
            held_down_by=disturbance.held_down_by,
        )

    def _without_overhead(self, side: BenchmarkTarget, samples_ms: Sequence[float]) -> Samples:
        times_ms: Samples = np.array(samples_ms)
        times_ms[self._settled :] -= side.overhead_ms(self._watch, self._runs)
        return times_ms.clip(MIN_MS)

    def _settle(self) -> None:
        """Take the overhead off for good that a sitting had: the next one's may differ."""
        self._baseline_ms = self._without_overhead(self._baseline, self._baseline_ms).tolist()
        self._own_ms = self._without_overhead(self._own, self._own_ms).tolist()
        self._settled = self._rounds

    def _move(self) -> None:
        self._pool.move_copies(self._rng)
        self._take_copies()

    def _take_copies(self) -> None:
        for side in (self._baseline, self._own):
            side.take_copies(self._copies)

    def _round(self, turn: int, base: int | None) -> None:
        """Time both sides on the same contents; one of the runs may be checked if a set to base it on is given."""
        copy = int(self._rng.integers(self._copies)) if self._batched else turn % REPLICAS
        mixes = self._mixes(turn, copy, base)
        baseline_first = turn % 2 == 0
        if baseline_first:
            self._baseline_ms.append(self._sample(self._baseline, turn, mixes))
        self._own_ms.append(self._sample(self._own, turn, mixes))
        if base is not None and self._checked.add(self._own_ms[-1], copy, mixes[copy]):
            self._take_copies()
        if not baseline_first:
            self._baseline_ms.append(self._sample(self._baseline, turn, mixes))

    def _mixes(self, turn: int, copy: int, base: int | None) -> list[Mix]:
        """Return what each copy holds in a turn, one of them by request; constants are set for all copies at once."""
        bases = [(turn // 2 + nth) % SETS for nth in range(self._copies)]
        if base is not None:
            bases[copy] = base
        if self._own.plan.constants:
            return [self._mix(bases[copy])] * self._copies
        return list(map(self._mix, bases))

    def _mix(self, base: int) -> Mix:
        return Mix.drawn(base, self._rng) if self._is_mixable else Mix(base)

    def _sample(self, side: BenchmarkTarget, turn: int, mixes: Sequence[Mix]) -> float:
        if self._batched:
            return side.batch_ms(self._watch, mixes)
        copy = turn % REPLICAS
        return side.cold_ms(self._watch, copy, mixes[copy])

    def _is_cold(self, elapsed_s: float, own_ms: list[float]) -> bool:
        if not WARM_UP_S <= elapsed_s < MAX_WARM_UP_S:
            return elapsed_s < WARM_UP_S
        conditions = self._looks.take(self._watch)
        if conditions.sm_clock_mhz is not None and conditions.clock_share >= FULL_CLOCK_SHARE:
            return False
        # Not all GPUs come near to the highest clock that they name, however long one waits.
        return conditions.clock_share < SLOW_CLOCK_SHARE or not settled(np.array(own_ms))
