"""A benchmark of a submission against its baseline: adds rounds until the verdict is certain or the time is up.

The number of rounds doubles until `statistics` finds the verdict certain. Both sides are timed the same way. Usually
the level-2 cache is flushed before each run. If one side is short and both touch little memory, runs are timed in
batches with warm caches, because launch overhead would outweigh a single short launch.

A timing session, which holds the GPU lock, may last less than 0.1 s. Interference with one side during all of it looks
like a slow kernel: another process may take memory bandwidth from one side only. So if a submission misses a threshold
by little, and for a calibration, the lock is released, and a second session follows. It never turns a pass of the first
session into a failure.

A session with too much interference is discarded and repeated, because the interfering kernel may hang and be stopped:
another submission must not decide the verdict on this one. `interference` detects disturbed rounds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pytest_gpulab.devices.stopwatch import SLOW_CLOCK_SHARE, Stopwatch, TimingDevice

from . import statistics
from .buffers import BufferPool
from .interference import FullSpeed, ThrottleMonitor
from .mixing import Mix
from .targets import REPLICAS, BenchmarkTarget
from .validation import SETS, CheckedRun, CheckedRuns

Caches = Literal["cold", "warm"]

BATCHED_BELOW_MS = 0.05  # for shorter kernels, launch overhead would dominate
BUDGET_S = 6.0  # other graders wait meanwhile
WARM_UP_ROUNDS = 2  # at least one with each set of contents
WARM_UP_S = 0.005  # a GPU that was busy just before has its full clock at once
MAX_WARM_UP_S = 0.5  # a throttled GPU never reaches its full clock
FULL_CLOCK_SHARE = 0.9
ROUNDS_PER_READING = 8  # between two samples of the GPU's clocks
ROUNDS_PER_PLACE = 4  # between two moves of the arrays; at most the block length of the bootstrap in `statistics`
MIN_MS = 1e-5  # keeps samples above zero when the overhead is subtracted
HELD_DOWN_ROUNDS = 64  # before throttled rounds may count, if there are no better ones
CALIBRATING_ROUNDS = 256  # for a calibration, which needs the ratio itself
MAX_SESSIONS = 2
NEAR_MISS = 2 / 3  # of the threshold: no known unnoticed interference changes a ratio by more
PAUSE_S = 0.25  # between two sessions
INTERRUPTED_PAUSE_S = 1.0  # before a session with too much interference is repeated
INTERRUPTED_WAIT_S = 60.0  # in total: several kernels may hang one after the other, each for 10 s
LONG_S = 1.0  # after a session of this length there is no second one


@dataclass(frozen=True)
class BenchmarkResult:
    """The result of a benchmark."""

    ratio: statistics.Ratio  # baseline over submission
    baseline_ms: float  # median of the rounds that count
    own_ms: float  # median of the rounds that count
    rounds: int  # number of rounds
    dropped: int  # number of rounds left out because of interference
    caches: Caches  # state of the level-2 cache before a run
    checked: tuple[CheckedRun, ...]  # some of the timed runs, with their outputs
    peak_bandwidth_gb_s: float  # the peak bandwidth of device memory; 0 if unknown
    l2_bytes: int  # size of the level-2 cache, in which written data may stay
    # longest interruption by other processes, if disturbed rounds count because there are no better ones; else 0
    interruption_ms: float = 0.0
    # reasons for throttling in rounds that count because there are no better ones, in words
    held_down_by: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # other processes seen on the GPU just after a session

    def floor_ms(self, least_bytes: float, written_bytes: int) -> float:
        """Return the shortest possible time for moving the bytes; 0 with warm caches or an unknown bandwidth.

        The written part of them may stay in the level-2 cache up to its size; read bytes are not in it before.
        """
        if self.caches == "warm" or not self.peak_bandwidth_gb_s:
            return 0.0
        moved = max(0.0, least_bytes - min(self.l2_bytes, written_bytes))
        return moved / (self.peak_bandwidth_gb_s * 1e9) * 1e3


@dataclass
class RetryBudget:
    """State of all benchmarks of a submission: time for repeating disturbed sessions, and the observed full clock."""

    left_s: float = field(default_factory=lambda: INTERRUPTED_WAIT_S)
    full_speed: FullSpeed = field(default_factory=FullSpeed)


def _of_both(first: BenchmarkResult, both: BenchmarkResult, thresholds: Sequence[float]) -> BenchmarkResult:
    """Return the result of both sessions, or the first one's if only that reaches a threshold."""
    if any(
        statistics.decide(both.ratio, threshold) == "failed" != statistics.decide(first.ratio, threshold)
        for threshold in thresholds
    ):
        return replace(first, checked=both.checked)
    return both


class Benchmark:
    """A benchmark of a submission against its baseline, both with memory from the pool.

    Rounds are added while one of the thresholds is undecided; None for a calibration, which needs the ratio.
    `is_mixable` says whether a range of an input may be replaced by the same range of another one. `rng` chooses
    checked runs, mixes and addresses, and seeds the bootstrap.
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
        self._stopwatch: Stopwatch
        self._sessions, self._spent_s, self._seed = 0, 0.0, int(rng.integers(2**32))
        self._batched, self._copies = False, REPLICAS
        self._baseline_ms: list[float] = []  # launch overhead included: it is known only at the end of a session
        self._own_ms: list[float] = []
        self._settled_rounds = 0  # rounds of earlier sessions, without launch overhead
        self._monitor: ThrottleMonitor
        self._checked = CheckedRuns(own, rng)
        self._discarded = 0
        self._others: dict[str, None] = {}

    def run(self, device: TimingDevice, retry_budget: RetryBudget) -> BenchmarkResult:
        """Time both sides in alternating order on the device with the buffers; may be called once.

        The retry budget, which the submission's benchmarks share, is updated. Raises BaselineFailed if a launch of a
        `Baseline` ends abnormally, and DeviceError if another launch does or another process does not release the GPU
        lock.
        """
        self._monitor = ThrottleMonitor(retry_budget.full_speed)
        result = self._session(device)
        while self._is_disturbed(result) and retry_budget.left_s > 0:
            begin_s = time.monotonic()
            time.sleep(INTERRUPTED_PAUSE_S)
            self._discard()
            result = self._session(device, drain=True)
            retry_budget.left_s -= time.monotonic() - begin_s
        if self._needs_second_session(result):
            time.sleep(PAUSE_S)
            result = _of_both(result, self._session(device), self._thresholds or ())
        return replace(result, others=tuple(self._others))

    def _session(self, device: TimingDevice, drain: bool = False) -> BenchmarkResult:
        with device.stopwatch(drain) as stopwatch:
            result = self._timed(stopwatch)
        self._others |= dict.fromkeys(stopwatch.others())  # slow, so after the lock is released
        return result

    def _timed(self, stopwatch: Stopwatch) -> BenchmarkResult:
        """Add rounds until the verdict is certain or the time is up; return the result of all rounds so far.

        A second session has at least as many rounds as the first.
        """
        if self._rounds:
            self._subtract_overhead()
        self._stopwatch, self._sessions = stopwatch, self._sessions + 1
        self._monitor.begin()
        self._warm_up()
        while True:
            begin_s = time.perf_counter()
            self._add(statistics.more_rounds(self._rounds))
            result = self._result()
            self._spent_s += time.perf_counter() - begin_s
            # The number of rounds doubles, so the next batch takes as long as all before.
            out_of_time = 2 * self._spent_s > BUDGET_S
            is_all_suspect = self._is_disturbed(result) and bool(self._monitor.suspect().all())
            if self._is_enough(result) or is_all_suspect or out_of_time or not statistics.more_rounds(self._rounds):
                return result

    def _needs_second_session(self, result: BenchmarkResult) -> bool:
        """Return whether a second session is needed."""
        if self._thresholds is None:
            return True
        if self._spent_s >= LONG_S or not statistics.more_rounds(self._rounds):
            return False
        return any(
            statistics.decide(result.ratio, threshold) == "failed" and result.ratio.high >= NEAR_MISS * threshold
            for threshold in self._thresholds
        )

    def _is_disturbed(self, result: BenchmarkResult) -> bool:
        """Return whether interference leaves a verdict undecided."""
        return result.interruption_ms > 0 and not self._is_decided(result)

    def _discard(self) -> None:
        self._discarded += self._rounds
        self._baseline_ms.clear()
        self._own_ms.clear()
        self._monitor.discard()
        self._sessions, self._spent_s = 0, 0.0

    def _is_enough(self, result: BenchmarkResult) -> bool:
        if result.held_down_by and self._rounds < HELD_DOWN_ROUNDS:
            return False
        if self._thresholds is None:
            return MAX_SESSIONS * self._rounds >= self._sessions * CALIBRATING_ROUNDS
        return self._is_decided(result)

    def _is_decided(self, result: BenchmarkResult) -> bool:
        """Return whether there are thresholds and all verdicts are certain."""
        thresholds = self._thresholds
        return thresholds is not None and all(
            statistics.decide(result.ratio, least) != "undecided" for least in thresholds
        )

    def _warm_up(self) -> None:
        """Run both sides until the GPU has its full clock; in the first session, choose batches or single runs.

        The runs use contents of every set. So a kernel that stores an answer per set stores a wrong one for the mixes
        that are checked later.
        """
        begin_s = time.perf_counter()
        baseline_ms: list[float] = []
        own_ms: list[float] = []
        while len(own_ms) < WARM_UP_ROUNDS or self._is_cold(time.perf_counter() - begin_s, own_ms):
            copy, mix = len(own_ms) % REPLICAS, self._mix(len(own_ms) % SETS)
            baseline_ms.append(self._baseline.cold_ms(self._stopwatch, copy, mix))
            own_ms.append(self._own.cold_ms(self._stopwatch, copy, mix))
        self._stopwatch.calibrate()
        sides = ((self._baseline, baseline_ms), (self._own, own_ms))
        shortest_ms = min(np.median(samples_ms) - side.overhead_ms(self._stopwatch) for side, samples_ms in sides)
        if not self._rounds and shortest_ms < BATCHED_BELOW_MS:
            size = min(side.batch_size(self._stopwatch.l2_bytes) for side in (self._baseline, self._own))
            if size >= REPLICAS:
                self._batched, self._copies = True, size

    @property
    def _runs(self) -> int:
        """Runs per sample."""
        return self._copies if self._batched else 1

    @property
    def _rounds(self) -> int:
        return len(self._own_ms)

    def _add(self, rounds: int) -> None:
        """Add this number of rounds, or fewer if the time is up; sample the GPU's state every few rounds."""
        self._monitor.latest(self._stopwatch)  # or the sample at the end of the warm-up
        bases, end = self._checked.choose(self._rounds, rounds), self._rounds + rounds
        until_s = time.perf_counter() + BUDGET_S - self._spent_s
        while self._rounds < end:
            first = self._rounds
            for turn in range(first, min(first + ROUNDS_PER_READING, end)):
                if (turn - first) % ROUNDS_PER_PLACE == 0:
                    self._move()
                self._round(turn, bases.get(turn))
                if self._rounds >= statistics.FEWEST_ROUNDS and time.perf_counter() > until_s:
                    end = self._rounds
                    break
            self._monitor.add(self._stopwatch, self._rounds - first)
            self._stopwatch.calibrate(briefly=True)

    def _result(self) -> BenchmarkResult:
        baseline_ms = self._without_overhead(self._baseline, self._baseline_ms)
        own_ms = self._without_overhead(self._own, self._own_ms)
        kept = statistics.kept_rounds(baseline_ms, own_ms, self._monitor.suspect())
        ratio = statistics.ratio_of_medians(baseline_ms[kept], own_ms[kept], self._seed)
        medians_ms = float(np.median(baseline_ms[kept])), float(np.median(own_ms[kept]))
        interference = self._monitor.of(kept)
        samples_ms = [self._runs * median_ms for median_ms in medians_ms]
        ratio = statistics.allowing_for_ticks(self._stopwatch.tick_ms, ratio, *samples_ms)
        ratio = statistics.allowing_for_slowness(interference.speed, ratio)
        return BenchmarkResult(
            ratio=statistics.allowing_for(interference.interruption_ms, ratio, *samples_ms),
            baseline_ms=medians_ms[0],
            own_ms=medians_ms[1],
            rounds=self._discarded + len(kept),
            dropped=self._discarded + int((~kept).sum()),
            caches="warm" if self._batched else "cold",
            checked=self._checked.kept,
            peak_bandwidth_gb_s=self._stopwatch.peak_bandwidth_gb_s,
            l2_bytes=self._stopwatch.l2_bytes,
            interruption_ms=interference.interruption_ms,
            held_down_by=interference.held_down_by,
        )

    def _without_overhead(self, side: BenchmarkTarget, samples_ms: Sequence[float]) -> statistics.Samples:
        times_ms: statistics.Samples = np.array(samples_ms)
        times_ms[self._settled_rounds :] -= side.overhead_ms(self._stopwatch, self._runs)
        return times_ms.clip(MIN_MS)

    def _subtract_overhead(self) -> None:
        """Subtract the launch overhead of the previous session from its samples: the next session's may differ."""
        self._baseline_ms = self._without_overhead(self._baseline, self._baseline_ms).tolist()
        self._own_ms = self._without_overhead(self._own, self._own_ms).tolist()
        self._settled_rounds = self._rounds

    def _move(self) -> None:
        self._pool.move_copies(self._rng)
        self._take_copies()

    def _take_copies(self) -> None:
        for side in (self._baseline, self._own):
            side.take_copies(self._copies)

    def _round(self, turn: int, base: int | None) -> None:
        """Time both sides on the same contents; one of the runs may be checked if a set to base it on is given."""
        # Any copy of a batch may be checked, so a kernel cannot skip work in the others.
        copy = int(self._rng.integers(self._copies)) if self._batched else turn % REPLICAS
        mixes = self._mixes(turn, copy, base)
        # Alternate the order, so that neither side always runs after the other.
        baseline_first = turn % 2 == 0
        if baseline_first:
            self._baseline_ms.append(self._sample(self._baseline, turn, mixes))
        self._own_ms.append(self._sample(self._own, turn, mixes))
        if base is not None and self._checked.add(self._own_ms[-1], copy, mixes[copy]):
            self._take_copies()
        if not baseline_first:
            self._baseline_ms.append(self._sample(self._baseline, turn, mixes))

    def _mixes(self, turn: int, copy: int, base: int | None) -> list[Mix]:
        """Return the contents of each copy in a turn; `base` sets those of `copy`. All copies share constants."""
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
            return side.batch_ms(self._stopwatch, mixes)
        copy = turn % REPLICAS
        return side.cold_ms(self._stopwatch, copy, mixes[copy])

    def _is_cold(self, elapsed_s: float, own_ms: list[float]) -> bool:
        if not WARM_UP_S <= elapsed_s < MAX_WARM_UP_S:
            return elapsed_s < WARM_UP_S
        conditions = self._monitor.take(self._stopwatch)
        if conditions.sm_clock_mhz is not None and conditions.clock_share >= FULL_CLOCK_SHARE:
            return False
        # Some GPUs never get near their rated maximum clock.
        return conditions.clock_share < SLOW_CLOCK_SHARE or not statistics.settled(np.array(own_ms))
