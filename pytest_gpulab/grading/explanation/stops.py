"""Where threads stop: at barriers that others do not reach, and where a fault ends the launch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.devices.trace_events import LaunchTrace, MissedBarrierEvent
from pytest_gpulab.grading.time_limits import TIME_LIMIT

from .tracing import Traced, linear

MAX_RUNS = 4  # of consecutive threads in a sentence
DEADLOCK = "deadlock"  # at a barrier: a missed one shows it


@dataclass(frozen=True)
class Stop:
    """A place where threads stop: a barrier that some do not reach, or the end of the launch."""

    what: str  # in words
    threads: Sequence[int] = ()  # those that stay away from the barrier, or that never go on; empty if all are alike


def ends_of(traced: Traced, number: int, block: int, is_marked: bool) -> Iterator[Stop]:
    """Yield where the threads of a block were when a fault ended the launch, unless an element is marked for it.

    Local arrays are not drawn, so reads of their elements before a write are among these sentences.
    """
    fault, launch = traced.run.error, traced.launches[number]
    for hazard in traced.run.profiles[number].hazards if number < len(traced.run.profiles) else ():
        if "__local__" in hazard.what and hazard.lane is not None and linear(hazard.lane.block, launch.grid) == block:
            yield _by_thread(hazard, launch)
    if not isinstance(fault, KernelFault) or number != len(traced.launches) - 1:
        return
    for stuck in launch.stuck:
        if stuck.block == block:
            threads, line = _threads(stuck.threads), f"line {stuck.where.line}" if stuck.where else "the kernel"
            one = len(stuck.threads) == 1
            said = f"wait{'s' * one} at the mbarrier in {line} for ever"
            if stuck.is_loop and fault.code == TIME_LIMIT:
                said = f"{'was' if one else 'were'} still in the loop in {line} at the time limit"
            elif stuck.is_loop:
                reason = fault.what.partition(": ")[2]
                said = f"never leave{'s' * one} the loop in {line}" + (f": {reason}" if reason else "")
            yield Stop(f"{threads} {said}", stuck.threads)
    is_here = fault.lane is not None and linear(fault.lane.block, launch.grid) == block
    if is_here and not launch.stuck and not is_marked and fault.code != DEADLOCK:
        yield _by_thread(fault, launch)


def _by_thread(found: KernelFault | Hazard, launch: LaunchTrace) -> Stop:
    assert found.lane is not None
    line = f"line {found.where.line}, " if found.where else ""
    is_late = isinstance(found, KernelFault) and found.code == TIME_LIMIT
    what = "the launch was stopped at the time limit" if is_late else found.what
    return Stop(f"{line}first by thread {linear(found.lane.thread, launch.block)}: {what}")


def missed_barrier(event: MissedBarrierEvent) -> str:
    """Return a barrier that not all threads reach, in words."""
    barrier = f"the barrier in line {event.where.line}" if event.where else "a barrier"
    if event.expected is not None:
        return f"{barrier} expects {event.expected} threads, but more arrive"
    if not event.absent:  # all threads wait, at named barriers that expect more
        return f"{barrier} waits for more threads, and no other thread arrives"
    verb = "does" if len(event.absent) == 1 else "do"
    return f"{_threads(event.absent)} {verb} not reach {barrier}"


def _threads(numbers: Sequence[int]) -> str:
    """Return threads as words, such as `threads 1, 3, 8 to 31`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs[:MAX_RUNS]]
    more = f" and {sum(map(len, runs[MAX_RUNS:]))} more" if len(runs) > MAX_RUNS else ""
    return f"thread{'s' * (len(numbers) != 1)} {', '.join(words)}{more}"
