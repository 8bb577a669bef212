"""The figure of one block as data: its rows with captions, and marks at what is wrong."""

import re
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from pytest_gpulab.devices.trace_events import LaunchTrace

from .departure import departures, last_values
from .loops import around, loops_of
from .marks import RACE, Mark, faulty_array, marks_of, missing
from .rows import Row, rows_of
from .stops import Stop, ends_of, missed_barrier
from .tracing import Traced, indices
from .warps import LineRun, WarpAccess, line_runs, warp_accesses

MAX_LAUNCHES, MAX_WARPS = 4, 2


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
    found = [figure for figure in found if figure.rows] or found  # a fault may come before the other blocks begin
    return found if any(figure.has_marks for figure in found) else _with_last_values(traced, found)


def _with_last_values(traced: Traced, figures: list[Figure]) -> list[Figure]:
    """Mark the wrong elements of outputs in the last figure that has them: no later launch corrects them."""
    for place in range(len(figures) - 1, -1, -1):
        if wrong := last_values(traced, figures[place].rows):
            marked = replace(figures[place], marks=tuple(Mark(*each) for each in wrong))
            return [*figures[:place], marked, *figures[place + 1 :]]
    return figures


def _figure(traced: Traced, number: int, launch: LaunchTrace, block: int) -> Figure:
    plan = traced.trial.prepared.plan
    faulty = faulty_array(traced, number, launch, block)
    ends = tuple(ends_of(traced, number, block, faulty is not None))
    also = faulty or next(iter(missing(traced, number)), None)
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
        tuple(dict.fromkeys(marks_of(traced, number, launch, block, rows))),
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
