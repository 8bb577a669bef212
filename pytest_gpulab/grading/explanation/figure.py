"""The figure of one block as data: its rows with captions, and marks at what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.devices.trace_events import AccessEvent, LaunchTrace, MissedBarrierEvent
from pytest_gpulab.grading.correctness.trials import unwritten

from .departure import departures
from .loops import around, loops_of
from .rows import MAX_ROWS, Row, rows_of
from .tracing import Traced, TracedArray
from .warps import LineRun, WarpAccess, line_runs, warp_accesses

MAX_LAUNCHES, MAX_WARPS = 4, 2
MAX_RUNS = 4  # of consecutive threads in a sentence
RACE = "race of threads"
HIDDEN_FLOWS = ("__shfl", "__reduce_", "cooperative_groups", "__ballot")


@dataclass(frozen=True)
class Mark:
    """A mark at an element of a row; `index` may lie beyond the array's end."""

    row: int
    index: int
    what: str


@dataclass(frozen=True)
class Figure:
    """The figure of one block of a launch.

    Attributes:
        title: the launch and the block.
        captions: one per row, such as `tile, step 2, stride = 4`.
        marks: what is wrong.
        warps: the executed lines of the first warps.
        accesses: the most expensive access of each line.
    """

    title: str
    rows: tuple[Row, ...]
    captions: tuple[str, ...]
    marks: tuple[Mark, ...]
    threads: int
    block: tuple[int, int, int]
    warps: tuple[tuple[LineRun, ...], ...]
    accesses: tuple[WarpAccess, ...]

    @property
    def has_race(self) -> bool:
        """True if a race is marked."""
        return any(mark.what.startswith(RACE) for mark in self.marks)

    @property
    def has_marks(self) -> bool:
        """True if anything is marked."""
        return bool(self.marks) or any(row.missed for row in self.rows)

    def mistakes(self, row: int) -> list[str]:
        """Return the marks of a row and the barriers missed after it, in words; one line if only numbers differ."""
        alike: dict[str, list[str]] = {}
        for mark in self.marks:
            if mark.row == row:
                alike.setdefault(re.sub(r"\d+", "", mark.what), []).append(mark.what)
        marks = [first + (f" (and {len(more)} more)" if more else "") for first, *more in alike.values()]
        return marks + self.missed_barriers(row)

    def missed_barriers(self, row: int) -> list[str]:
        """Return the barriers after a row that not all threads reach, in words."""
        return [_missed(event) for event in self.rows[row].missed]

    def active(self, row: Row) -> str:
        """Return the line of a row and how many threads write, in words."""
        if not row.writers:
            return "as the kernel finds it"
        line = f"line {row.line}: " if row.line else ""
        verb = "shuffle" if row.array.is_register else "write"
        return f"{line}{len(row.threads)} of {self.threads} threads {verb}"


def figures_of(traced: Traced, blocks: frozenset[int]) -> list[Figure]:
    """Return the figures of these blocks of the first launches."""
    found: list[Figure] = []
    departed = MAX_LAUNCHES  # the launch with the first wrong values
    for number, launch in enumerate(traced.launches[:MAX_LAUNCHES]):
        for block in sorted(blocks):
            if block >= prod(launch.grid):
                continue
            figure = _figure(traced, number, launch, block)
            if number <= departed and (first := departures(traced, number, block, figure.rows)):
                departed = number
                figure = replace(figure, marks=(*figure.marks, *(Mark(*mark) for mark in first)))
            found.append(figure)
    return found


def _figure(traced: Traced, number: int, launch: LaunchTrace, block: int) -> Figure:
    plan = traced.trial.prepared.plan
    missing = _missing(traced, number)
    also = _faulty_array(traced, number, launch, block) or next(iter(missing), None)
    rows = rows_of(launch, traced.arrays[number], block, also)
    of = f", launch {number + 1} of {len(plan.launches)}" if len(plan.launches) > 1 else ""
    threads = prod(launch.block)
    warps = (tuple(line_runs(launch, block, warp)) for warp in range(min(MAX_WARPS, -(-threads // 32))))
    return Figure(
        f"{plan.launches[number].kernel}{of}, block {block} of {prod(launch.grid)}{_numbering(launch.block)}",
        tuple(rows),
        _captions(traced, launch, rows),
        tuple(dict.fromkeys(_marks(traced, number, launch, block, rows))),
        threads,
        launch.block,
        tuple(warps),
        (*warp_accesses(launch, block, "shared"), *warp_accesses(launch, block, "global")),
    )


def _numbering(block: tuple[int, int, int]) -> str:
    """Return how the threads of a block with several axes are numbered."""
    x, y, z = block
    of_z = f" + {x * y}*z" if z > 1 else ""
    return f", thread number = x + {x}*y{of_z}" if y > 1 or z > 1 else ""


def _captions(traced: Traced, launch: LaunchTrace, rows: list[Row]) -> tuple[str, ...]:
    loops = loops_of(traced.source, _known(traced, launch))
    by_line: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        by_line.setdefault(row.line, []).append(number)
    values: dict[int, str] = {}
    for line, numbers in by_line.items():
        loop = around(loops, line)
        if loop is None:
            continue
        steps = [list(of) for _, of in groupby(numbers, key=lambda n: rows[n].step)]  # a loop that runs in each step
        for runs in [numbers], steps:
            if all(len(run) == len(loop.values) for run in runs):
                named = [f"{loop.name} = {value}" for value in loop.values]
                values |= {number: name for run in runs for number, name in zip(run, named, strict=True)}
    return tuple(_caption(row, values.get(number, "")) for number, row in enumerate(rows))


def _caption(row: Row, value: str) -> str:
    if not row.writers:
        return f"{row.array.name}, before"
    return ", ".join(filter(None, (f"{row.array.name}, step {row.step}", value)))


def _known(traced: Traced, launch: LaunchTrace) -> dict[str, int]:
    dimensions = zip("xyz", launch.block, strict=True)
    return {**{f"blockDim.{axis}": extent for axis, extent in dimensions}, **traced.trial.problem.tunables}


def _marks(traced: Traced, number: int, launch: LaunchTrace, block: int, rows: list[Row]) -> Iterator[Mark]:
    run = traced.run
    hazards = run.profiles[number].hazards if number < len(run.profiles) else ()
    yield from _unwritten(rows, any(hazard.kind == "uninitialised" for hazard in hazards))
    faulty = _faulty_array(traced, number, launch, block)
    if isinstance(run.error, KernelFault) and faulty is not None:
        yield from _fault(run.error, traced.arrays[number][faulty], rows)
    for hazard in hazards:
        yield from _race(hazard, launch, block, rows)
    for key, words in _missing(traced, number).items():
        last = max((n for n, row in enumerate(rows) if row.array is traced.arrays[number][key]), default=None)
        yield from () if last is None else (Mark(last, index, what) for index, what in words)
    if number == len(traced.launches) - 1 and run.error is None and not run.hazards:
        yield from _lost(traced, rows)


def _unwritten(rows: list[Row], is_uninitialised: bool) -> Iterator[Mark]:
    """Mark reads of unwritten elements. Without a hazard, those of a global array were written by another block."""
    for number, row in enumerate(rows):
        if row.array.buffer and not is_uninitialised:
            continue
        for index, thread in row.unwritten.items():
            is_late = any(index in later.writers for later in rows[number + 1 :] if later.array is row.array)
            when = " before any thread has written it" if is_late else ", which was never written"
            yield Mark(number, index, f"thread {thread} reads {row.array.element(index)}{when}")


def _faulty_array(traced: Traced, number: int, launch: LaunchTrace, block: int) -> tuple[str, int] | None:
    """Return the key of the array that a fault in the block missed, or None."""
    fault = traced.run.error
    if not isinstance(fault, KernelFault) or fault.location is None or number != len(traced.launches) - 1:
        return None
    if fault.lane is not None and _linear(fault.lane.block, launch.grid) != block:
        return None
    place = fault.location
    return next(
        (
            (space, start)
            for (space, start), array in traced.arrays[number].items()
            if space == place.space and (start == place.base if space == "global" else array.name == place.symbol)
        ),
        None,
    )


def _fault(fault: KernelFault, array: TracedArray, rows: list[Row]) -> Iterator[Mark]:
    assert fault.location is not None
    number = max(number for number, row in enumerate(rows) if row.array is array)
    yield Mark(number, fault.location.offset // array.dtype.itemsize, fault.what)


def _race(hazard: Hazard, launch: LaunchTrace, block: int, rows: list[Row]) -> Iterator[Mark]:
    """Mark the element that both threads of a race use."""
    other = hazard.other
    if hazard.kind != "race" or hazard.harmless or other is None or hazard.lane is None or hazard.where is None:
        return
    mine, theirs = (_linear(lane.thread, launch.block) for lane in (hazard.lane, other.lane))
    own, others = (_linear(lane.block, launch.grid) for lane in (hazard.lane, other.lane))
    if own != block:
        return
    lines = sorted({hazard.where.line, other.where.line if other.where else 0})
    users = {mine, theirs} if own == others else {mine}
    places = [
        (row.line not in lines, number, index)
        for number, row in enumerate(rows)
        for index, writers in row.writers.items()
        if users & set(writers) and users <= {*writers, *_readers(rows, row, index)}
    ]
    if places:
        _, number, index = min(places)
        element, named = rows[number].array.element(index), " and ".join(map(str, lines))
        what = f"race of blocks {own} and {others} on {element}: blocks run in no order (line {named})"
        if own == others:
            between = "lines" if len(lines) > 1 else "accesses in line"
            what = f"{RACE} {mine} and {theirs} on {element}: no barrier between {between} {named}"
        yield Mark(number, index, what)


def _readers(rows: list[Row], row: Row, index: int) -> set[int]:
    """Return the threads that read an element of a row's array."""
    return {thread for other in rows if other.array is row.array for thread in other.readers.get(index, ())}


def _linear(index: tuple[int, int, int], extents: tuple[int, int, int]) -> int:
    return index[0] + extents[0] * (index[1] + extents[1] * index[2])


def _missed(event: MissedBarrierEvent) -> str:
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


def _missing(traced: Traced, number: int) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Return the elements of the outputs that no thread of the plan writes, with words, by the key of the array."""
    if number != len(traced.launches) - 1 or traced.run.error is not None:
        return {}
    masks = unwritten(traced.trial, traced.run) | _left_zero(traced, number)
    return {
        key: [(index, f"no thread writes {array.element(index)}") for index in np.flatnonzero(mask).tolist()]
        for key, array in traced.arrays[number].items()
        if array.buffer and (mask := masks.get(array.buffer)) is not None and mask.any()
    }


def _left_zero(traced: Traced, number: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which wrong elements of zeroed outputs no thread writes, by output, if all blocks are recorded."""
    plan, launch = traced.trial.prepared.plan, traced.launches[number]
    if len(plan.launches) > 1 or launch.is_cut or not traced.blocks.issuperset(range(prod(launch.grid))):
        return {}
    found: dict[str, npt.NDArray[np.bool_]] = {}
    for (space, base), array in traced.arrays[number].items():
        wrong = traced.trial.wrong(traced.run).get(array.buffer) if space == "global" else None
        if wrong is not None and plan.buffer(array.buffer).zeroed:
            writes = (each for each in launch.events if isinstance(each, AccessEvent) and each.kind != "read")
            places = [each.offsets for each in writes if (each.space, each.base) == (space, base)]
            mask = wrong.reshape(-1).copy()
            mask[np.concatenate([np.zeros(0, np.int64), *places]) // array.dtype.itemsize] = False
            found[array.buffer] = mask
    return found


def _lost(traced: Traced, rows: list[Row]) -> Iterator[Mark]:
    """Mark elements of inputs that reach no output, if the result is wrong and values pass through arrays only."""
    wrong, launch = traced.trial.wrong(traced.run), traced.launches[-1]
    is_hidden = len(traced.launches) > 1 or any(word in traced.source for word in HIDDEN_FLOWS)
    if not wrong or is_hidden or not traced.blocks.issuperset(range(prod(launch.grid))):
        return
    reached: set[tuple[str, int]] = set()
    for block in sorted(traced.blocks):
        own = rows_of(launch, traced.arrays[-1], block)
        if len(own) == MAX_ROWS:  # there may be more rows
            return
        reached |= {(own[number].array.buffer, index) for number, index in _reached(own) if not own[number].writers}
    for number, row in enumerate(rows):
        if not row.writers and row.array.contents is not None and not np.any(row.array.unwritten):
            lost = [index for index in range(prod(row.array.shape)) if (row.array.buffer, index) not in reached]
            if len(lost) < prod(row.array.shape):
                yield from (Mark(number, index, f"{row.array.element(index)} reaches no output") for index in lost)


def _reached(rows: list[Row]) -> set[tuple[int, int]]:
    """Return the elements, as (row, index), from which a chain of arrows leads to an output."""
    reached = {(number, index) for number, row in enumerate(rows) if _is_output(row) for index in row.writers}
    for number in range(len(rows) - 1, -1, -1):
        row = rows[number]
        reached |= {(a.source.row, a.source.index) for a in row.arrows if (number, a.index) in reached}
        below = next((n for n in range(number - 1, -1, -1) if rows[n].array is row.array), None)
        if below is not None:  # elements that the row has not written
            reached |= {(below, i) for n, i in reached if n == number and i not in row.writers}
    return reached


def _is_output(row: Row) -> bool:
    return bool(row.writers) and row.array.contents is not None
