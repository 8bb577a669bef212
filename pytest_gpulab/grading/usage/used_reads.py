"""The share of reads from constant or shared memory that the outputs depend on.

A kernel can read such memory for show, and take the values from elsewhere. So some reads, chosen at random, are
disturbed, one per run: they give first a larger value, then a smaller one. If the kernel uses it, an output changes.

A value that is read twice, added and subtracted, does not count either. So the write of the value is disturbed, too:
then both reads return the changed value, and no output changes. Constant memory has no writes; there the value itself
is changed, and some output must become the same as with the disturbed read.

Different copies of a value can still cancel each other out, as in `sum + (one - copy)`. So all reads of shared memory
together must matter: the kernel runs with other inputs, and once more with these inputs while its reads return what
they returned with the first inputs. If the outputs are the same as with the other inputs alone, no read counts.

Values that are only compared do not count, unless the exercise is about comparisons: a kernel can compare them with
what it takes from elsewhere, and spoil its output if they differ.

A check can ask for values that several threads use. Then the write of a value must change more outputs than one of its
reads does. Finished sums that one thread hands to another do not count. Nor do values that the outputs also get on
another way, such as by shuffles: if few elements of an input change, but no read does, most outputs must stay the same.

Shared memory is for values that other threads need. So reads of a thread's own values count only as far as a tree
needs them: one per read of another thread's value. Constant memory is for its cache: reads of the variables that do not
pass through the constant cache are no use of it.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import (
    Device,
    DeviceUnavailable,
    DisturbedRead,
    DisturbedSpace,
    KernelFault,
    OutOfMemory,
    RecordedReads,
)
from pytest_gpulab.exercise import Array, Plan
from pytest_gpulab.grading.compilation.builds import Build, BuildFailed
from pytest_gpulab.grading.correctness.checked_launches import run_fresh
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.plans.replay import FIRST, Run
from pytest_gpulab.grading.time_limits import TIME_LIMIT

COUNTERS: Mapping[DisturbedSpace, tuple[str, ...]] = {
    "constant": ("gpulab__constant_requests.sum", "gpulab__constant_words.sum"),
    "shared": tuple(f"gpulab__shared_requests_op_{op}.sum" for op in ("ld", "st", "atom")),
}
"""Counters that count only as far as the reads of a memory are used: without such reads, writes are useless, too."""
READS = 12  # to disturb
ENOUGH = 0.75  # enough of them: other reads may be of threads without an element, or cancel out
# Also enough if all of them are used, which halves the runs of an honest kernel. By this or by `ENOUGH`, a kernel that
# uses half of its reads passes once in 11 times; one that uses a quarter, once in 770 times.
ALL_OF_THE_FIRST = 5
# Below this share, no read counts: most are for show, and chance would decide how many of the others are tried.
LEAST = 1 / 3
UNCLEAR, MORE_READS = 1 / 6, 36
"""From this share on, more reads decide. A kernel that uses an eighth of its reads has a third of 12 once in 20 times,
of 36 once in 1,000 times."""
PROPER: Mapping[DisturbedSpace, float] = {"constant": 0.9, "shared": 0.5}
"""The required share of proper reads, for which the memory is meant; with fewer, only a part of all reads counts."""
# The least share of the changed outputs that must depend on shared memory. Of a scan with shuffles, the first warp of a
# block gets its result without it.
DEPENDING = 1 / 8
# The share of an input's elements that change, and the least share of the outputs changed thereby that must stay the
# same if all reads do: of a sum over a square, a thread's own element may come on another way.
FEW, CARRIED = 1 / 200, 1 / 2
# Time limit of a disturbed run: seconds, and undisturbed runs. The disturbed value may be what ends a loop.
LIMIT_S, LIMIT_TIMES = 1.0, 2.0
SLOWER = 1.2  # a limit that grows by this factor is worth another try


_PROPER: Mapping[DisturbedSpace, str] = {
    "constant": "reads of `__constant__` variables that come through the constant cache",
    "shared": "values read from shared memory that another thread wrote",
}


@dataclass(frozen=True)
class UsedReads:
    """The share of the tried reads from a memory that the outputs depend on.

    `proper` is the share of reads for which the memory is meant, see `DisturbedRead`. `reused` is as in `used_reads`.
    `decisive` is False if the outputs are the same when all reads return the values of other inputs.
    """

    space: DisturbedSpace
    used: int
    tried: int
    proper: float
    reused: bool = False
    decisive: bool = True

    @property
    def share(self) -> float:
        """The used share; 1 if it is large enough."""
        share = self.used / self.tried
        return 1.0 if share >= ENOUGH else share

    @property
    def counting(self) -> float:
        """The share of reads that count as a use of the memory."""
        if self.share < LEAST or not self.decisive:
            return 0.0
        if self.space == "constant":
            return self.share if self.proper >= PROPER["constant"] else 0.0
        return self.share * min(1.0, self.proper / PROPER["shared"])

    @property
    def evidence(self) -> str:
        """The share that is too small, for a finding."""
        if not self.decisive and self.reused:
            return "outputs follow the input, even if all reads of shared memory return the values of another input"
        if not self.decisive:
            return "outputs are the same if all reads of shared memory return the values of other inputs"
        if self.proper < PROPER[self.space]:
            return f"{_PROPER[self.space]}: {100 * self.proper:.2g} %"
        which = "of values that affect several outputs" if self.reused else "that affect an output"
        return f"reads of {self.space} memory {which}: {self.used} of {self.tried}"


def used_reads(
    device: Device,
    build: Build,
    plan: Plan,
    inputs: Mapping[str, Array],
    others: Mapping[str, Array],
    rng: np.random.Generator,
    space: DisturbedSpace,
    compared: bool = False,
    reused: bool = False,
) -> UsedReads:
    """Return the used share of a submission's reads; of constant memory, only the plan's constants can be used.

    The first arguments are as in `replay`; `rng` chooses the reads of the memory `space`. With `compared`, values that
    are only compared count as used. With `reused`, values in shared memory count only if more outputs depend on them
    than on one of their reads. Raises BuildFailed if the runs take too long, or fail for another reason than the
    disturbed reads.
    """
    recorded = RecordedReads() if space == "shared" else None
    none = DisturbedRead(nth=-1, flipped=0, space=space, compared=compared, single=reused, recorded=recorded)
    runs = _Runs((device, build, plan, inputs), none, _masks(rng, compared))
    proper = none.proper / none.lanes if none.lanes else 1.0
    if not none.seen or not proper:
        return UsedReads(space, 1, 1, proper)
    used = tried = 0
    for tried, nth in enumerate(rng.integers(none.seen, size=MORE_READS).tolist(), start=1):
        used += runs.is_used(nth)
        if used == tried == ALL_OF_THE_FIRST:
            break
        if tried == READS and not UNCLEAR <= used / tried < ENOUGH:
            break
    are_decisive = used / tried < LEAST or (
        runs.carry_changes(others, rng) if recorded is not None and reused else runs.are_decisive(others)
    )
    return UsedReads(space, used, tried, proper, reused, are_decisive)


class _Runs:
    """Runs of a submission, undisturbed and disturbed, with flipped bits as in `_masks`.

    The undisturbed run stores its counts of reads in `none`, a disturbed read that changes nothing.
    """

    def __init__(
        self, replayed: tuple[Device, Build, Plan, Mapping[str, Array]], none: DisturbedRead, masks: tuple[int, ...]
    ) -> None:
        self._replayed, self._none, self._masks = replayed, none, masks
        self._before, self._limit_s = self._undisturbed(none)
        self._recorded, none.recorded = none.recorded, None

    def are_decisive(self, others: Mapping[str, Array]) -> bool:
        """Return True if outputs of other inputs change where all reads return the values of the first inputs."""
        if self._recorded is None:
            return True
        before, mixed = self._with_first_reads(others)
        return mixed.error is not None or _depend(self._before, before, mixed)

    def carry_changes(self, others: Mapping[str, Array], rng: np.random.Generator) -> bool:
        """Return True if few changed elements of an input change most outputs by reads only, not on another way."""
        inputs = self._replayed[3]
        for name, values in inputs.items():
            few = np.where(rng.random(values.shape) < FEW, others[name], values)
            before, mixed = self._with_first_reads({**inputs, name: few})
            changes = {out: _changed(self._before, before, out) for out in before.outputs}
            if mixed.error is not None or CARRIED * sum(int(changed.sum()) for changed in changes.values()) <= sum(
                int((changed & ~_changed(self._before, mixed, out)).sum()) for out, changed in changes.items()
            ):
                return True
        return False

    def _with_first_reads(self, others: Mapping[str, Array]) -> tuple[Run, Run]:
        """Return a run with other inputs, and one in which all reads return the values of the first inputs as well."""
        assert self._recorded is not None
        device, build, plan, _ = self._replayed
        blank = replace(self._none, seen=0, written=0, lanes=0, proper=0)
        known = _Runs((device, build, plan, others), blank, self._masks)
        self._recorded.is_replayed = True
        return known._before, known._limited(replace(blank, recorded=self._recorded))[1]

    def is_used(self, nth: int) -> bool:
        """Return True if an output depends on a read, by its index."""
        for read, run in self._disturbed(nth):
            if changed := _changes(self._before, run):
                if read.space == "constant":
                    _, everywhere = self._limited(replace(read, is_write=True))
                    return _agree_somewhere(self._before, run, everywhere)
                return read.source < 0 or self._is_source_used(read, changed + 1 if read.single else 1)
        return False

    def _is_source_used(self, read: DisturbedRead, least: int) -> bool:
        """Return True if enough output elements depend on the written value that a read has returned."""
        write = replace(self._none, is_write=True, address=read.address)
        return any(_changes(self._before, run) >= least for _, run in self._disturbed(read.source, write))

    def _disturbed(self, nth: int, which: DisturbedRead | None = None) -> Iterator[tuple[DisturbedRead, Run]]:
        """Yield the runs in which a read, or the write `which`, gives other values, by mask."""
        for flipped in self._masks:
            yield self._limited(
                replace(which or self._none, nth=nth, flipped=flipped, seen=0, written=0, lanes=0, proper=0)
            )

    def _limited(self, begun: DisturbedRead) -> tuple[DisturbedRead, Run]:
        """Return a disturbed run that ends within the limit, or does not end because of the read.

        An undisturbed run shows if the machine has become slower; then the read is tried again, with a longer limit.
        Raises BuildFailed if the machine ended the run, or the time of the check is used up.
        """
        read = replace(begun)
        run = self._run(read, self._limit_s)
        if isinstance(run.error, DeviceUnavailable | OutOfMemory):
            raise BuildFailed(*of_error(run.error))
        if not isinstance(run.error, KernelFault) or run.error.code != TIME_LIMIT:
            return read, run
        before_s = self._limit_s
        _, self._limit_s = self._undisturbed(replace(self._none))
        return (read, run) if self._limit_s < SLOWER * before_s else self._limited(begun)

    def _undisturbed(self, none: DisturbedRead) -> tuple[Run, float]:
        """Return a run without a changed read, and the limit of others: a multiple of its time."""
        begin_s = time.perf_counter()
        run = self._run(none)
        if run.error is not None:
            raise BuildFailed(*of_error(run.error))
        return run, LIMIT_S + LIMIT_TIMES * (time.perf_counter() - begin_s)

    def _run(self, read: DisturbedRead, limit_s: float | None = None) -> Run:
        if read.recorded is not None:
            read.recorded.turns.clear()
        options = replace(FIRST.options, check=False, disturbed=read, time_limit_s=limit_s)
        return run_fresh(*self._replayed, options)


def _masks(rng: np.random.Generator, compared: bool) -> tuple[int, ...]:
    """Return masks of bits to flip, for values of any size: with the first most values grow, with the second fall.

    So a result that is a maximum changes, and one that is a minimum. A value that is compared may matter in a small
    range only, such as the 32 bins that a warp counts: then further masks reach each eighth of a byte's values.
    """
    tops = (0x40, 0xC0, 0x20, 0x60, 0x80, 0xA0, 0xE0) if compared else (0x40, 0xC0)
    low = rng.integers(1, 32 if compared else 64, 8, np.uint8)
    return tuple(int.from_bytes((low | top).tobytes(), "little") for top in tops)


def _changes(before: Run, run: Run) -> int:
    """Return the number of changed output elements; 1 for a run that faults, which depends on its reads, too."""
    if run.error is not None:
        return 1
    return sum(int(_changed(before, run, name).sum()) for name in before.outputs)


def _changed(before: Run, run: Run, name: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements of an output that differ in any bit."""
    differ: npt.NDArray[np.bool_] = (_words(before, name) != _words(run, name)).any(axis=1)
    return differ


def _words(run: Run, name: str) -> npt.NDArray[np.unsignedinteger]:
    """Return an output's elements as rows of words of at most 8 bytes, which compare much faster than bytes."""
    values = np.ascontiguousarray(run.outputs[name]).reshape(-1, 1)
    return values.view(f"u{math.gcd(values.itemsize, 8)}")


def _depend(before: Run, others: Run, mixed: Run) -> bool:
    """Return True if a share of the outputs that other inputs change depends on the values of reads."""
    changes = {name: _changed(before, others, name) for name in others.outputs}
    depending = sum(int((changes[name] & _changed(others, mixed, name)).sum()) for name in changes)
    return depending >= DEPENDING * sum(int(changed.sum()) for changed in changes.values())


def _agree_somewhere(undisturbed: Run, read: Run, memory: Run) -> bool:
    """Return True if some output changes in the same way, whether one read of a value is changed or the value itself.

    With a value that is combined with a copy of itself, no output does. A value that leads to a fault does so in both.
    """
    if memory.error is not None:
        return True
    if read.error is not None:
        return False
    return any(
        (_changed(undisturbed, read, name) & ~_changed(read, memory, name)).any() for name in undisturbed.outputs
    )
