"""The figure of one block as data: its rows with captions, and marks at what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.devices.trace_events import AccessEvent, LaunchTrace
from pytest_gpulab.grading.correctness.trials import unwritten

from .departure import departures
from .loops import around, loops_of
from .rows import MAX_ROWS, Row, rows_of
from .stops import Stop, ends_of, missed_barrier
from .tracing import Traced, TracedArray, indices, linear
from .warps import LineRun, WarpAccess, line_runs, warp_accesses

MAX_LAUNCHES, MAX_WARPS = 4, 2
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
    """The figure of one block of a launch."""

    title: str  # the launch and the block
    rows: tuple[Row, ...]
    captions: tuple[str, ...]  # one per row, such as `tile, step 2, stride = 4`
    marks: tuple[Mark, ...]  # what is wrong
    threads: int
    block: tuple[int, int, int]
    warps: tuple[tuple[LineRun, ...], ...]  # the executed lines of the first warps
    accesses: tuple[WarpAccess, ...]  # the most expensive access of each line
    ends: tuple[Stop, ...] = ()  # where the threads were after the last row, if a fault ended the launch

    @property
    def has_race(self) -> bool:
        """True if a race is marked."""
        return any(mark.what.startswith(RACE) for mark in self.marks)

    @property
    def has_marks(self) -> bool:
        """True if anything is marked."""
        return bool(self.marks or self.ends) or any(row.missed for row in self.rows)

    def mistakes(self, row: int) -> list[str]:
        """Return the marks of a row and the stops after it, in words; one line if only numbers differ."""
        alike: dict[str, list[str]] = {}
        for mark in self.marks:
            if mark.row == row:
                alike.setdefault(re.sub(r"\d+", "", mark.what), []).append(mark.what)
        marks = [first + (f" (and {len(more)} more)" if more else "") for first, *more in alike.values()]
        return marks + [stop.what for stop in self.stops(row)]

    @property
    def all_mistakes(self) -> list[str]:
        """The mistakes of all rows, each once."""
        return list(dict.fromkeys(words for row in range(len(self.rows)) for words in self.mistakes(row)))

    def stops(self, row: int) -> list[Stop]:
        """Return the barriers after a row that not all threads reach, and after the last row the end of the launch."""
        missed = [Stop(missed_barrier(event), event.absent) for event in self.rows[row].missed]
        return missed + list(self.ends if row == len(self.rows) - 1 else ())

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
    return [figure for figure in found if figure.rows] or found  # a fault may come before the other blocks begin


def _figure(traced: Traced, number: int, launch: LaunchTrace, block: int) -> Figure:
    plan = traced.trial.prepared.plan
    missing = _missing(traced, number)
    faulty = _faulty_array(traced, number, launch, block)
    ends = tuple(ends_of(traced, number, block, faulty is not None))
    also = faulty or next(iter(missing), None)
    rows = rows_of(launch, traced.arrays[number], block, also)
    of = f", launch {number + 1} of {len(plan.launches)}" if len(plan.launches) > 1 else ""
    if ends and not rows:  # they stand below a row
        rows = rows_of(launch, traced.arrays[number], block, next(iter(traced.arrays[number]), None))
    while len(rows) > 2 and ends and _is_repeated(rows[-2], rows[-1]) and _is_repeated(rows[-3], rows[-2]):
        rows.pop()  # a loop without end
    threads = prod(launch.block)
    warps = (tuple(line_runs(launch, block, warp)) for warp in range(min(MAX_WARPS, -(-threads // 32))))
    return Figure(
        f"{plan.launches[number].kernel}{of}, block {block} of {prod(launch.grid)}{_numbering(launch.block)}",
        tuple(rows),
        _captions(traced, number, block, rows),
        tuple(dict.fromkeys(_marks(traced, number, launch, block, rows))),
        threads,
        launch.block,
        tuple(warps),
        (*warp_accesses(launch, block, "shared"), *warp_accesses(launch, block, "global")),
        ends,
    )


def _is_repeated(row: Row, later: Row) -> bool:
    """Return whether a row repeats another one, with the same threads and values."""
    is_same = (row.array, row.line, row.writers) == (later.array, later.line, later.writers)
    return is_same and row.values.tobytes() == later.values.tobytes()


def _numbering(block: tuple[int, int, int]) -> str:
    """Return how the threads of a block with several axes are numbered."""
    x, y, z = block
    of_z = f" + {x * y}*z" if z > 1 else ""
    return f", thread number = x + {x}*y{of_z}" if y > 1 or z > 1 else ""


def _captions(traced: Traced, number: int, block: int, rows: list[Row]) -> tuple[str, ...]:
    launch = traced.launches[number]
    threads = [_named("threadIdx", indices(linear, launch.block)) for linear in (0, prod(launch.block) - 1)]
    loops = loops_of(traced.source, _known(traced, number, block), threads)
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
            if all(len(run) == len(loop.until_steady) for run in runs):
                named = [f"{loop.name} = {value}" for value in loop.until_steady]
                values |= {number: name for run in runs for number, name in zip(run, named, strict=True)}
        if len(set(loop.values)) == 1:  # a loop without end, or of one iteration
            values |= dict.fromkeys(numbers, f"{loop.name} = {loop.values[0]}")
    return tuple(_caption(row, values.get(number, "")) for number, row in enumerate(rows))


def _caption(row: Row, value: str) -> str:
    if not row.writers:
        return f"{row.array.name}, before"
    return ", ".join(filter(None, (f"{row.array.name}, step {row.step}", value)))


def _known(traced: Traced, number: int, block: int) -> dict[str, int]:
    """Return the values of names that all threads of a block share: of its extents, of parameters, of tunables."""
    launch = traced.launches[number]
    known = _named("blockDim", launch.block) | _named("gridDim", launch.grid)
    return {
        **known,
        **_named("blockIdx", indices(block, launch.grid)),
        **traced.scalars[number],
        **traced.trial.problem.tunables,
    }


def _named(name: str, values: tuple[int, int, int]) -> dict[str, int]:
    return {f"{name}.{axis}": value for axis, value in zip("xyz", values, strict=True)}


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
    if fault.lane is not None and linear(fault.lane.block, launch.grid) != block:
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
    mine, theirs = (linear(lane.thread, launch.block) for lane in (hazard.lane, other.lane))
    own, others = (linear(lane.block, launch.grid) for lane in (hazard.lane, other.lane))
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
