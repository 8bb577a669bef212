"""Marks at what is wrong in a block: elements of its rows, each with a sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.devices.trace_events import AccessEvent, LaunchTrace
from pytest_gpulab.grading.correctness.trials import unwritten

from .rows import MAX_ROWS, Row, rows_of
from .tracing import Traced, TracedArray, linear

RACE = "race of threads"
HIDDEN_FLOWS = ("__shfl", "__reduce_", "cooperative_groups", "__ballot")


@dataclass(frozen=True)
class Mark:
    """A mark at an element of a row; `index` may lie beyond the array's end."""

    row: int
    index: int
    what: str


def marks_of(traced: Traced, number: int, launch: LaunchTrace, block: int, rows: list[Row]) -> Iterator[Mark]:
    """Yield the marks of a block of a launch; an element may have several."""
    run = traced.run
    hazards = run.profiles[number].hazards if number < len(run.profiles) else ()
    yield from _unwritten(rows, any(hazard.kind == "uninitialised" for hazard in hazards))
    faulty = faulty_array(traced, number, launch, block)
    if isinstance(run.error, KernelFault) and faulty is not None:
        yield from _fault(run.error, traced.arrays[number][faulty], rows)
    for hazard in hazards:
        yield from _race(hazard, launch, block, rows)
        yield from _out_of_step(hazard, launch, block, rows)
    if any(found.code == "input-changed" for found in traced.trial.outcome.findings):
        yield from _changed_inputs(traced, rows)
    for key, words in missing(traced, number).items():
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


def faulty_array(traced: Traced, number: int, launch: LaunchTrace, block: int) -> tuple[str, int] | None:
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


def _out_of_step(hazard: Hazard, launch: LaunchTrace, block: int, rows: list[Row]) -> Iterator[Mark]:
    """Mark the element of the first thread in a warp operation that lacks lanes, where the fewest threads take part."""
    if hazard.kind != "barrier" or hazard.lane is None or hazard.where is None:
        return
    thread = linear(hazard.lane.thread, launch.block)
    places = [
        (len(row.threads), number, index)
        for number, row in enumerate(rows)
        for index, writers in row.writers.items()
        if row.line == hazard.where.line and thread in writers
    ]
    if places and linear(hazard.lane.block, launch.grid) == block:
        _, number, index = min(places)
        yield Mark(number, index, f"thread {thread}: {hazard.what}")


def _changed_inputs(traced: Traced, rows: list[Row]) -> Iterator[Mark]:
    """Mark the elements of inputs that threads overwrite."""
    for number, row in enumerate(rows):
        if row.array.buffer and traced.trial.prepared.plan.buffer(row.array.buffer).role == "input":
            for index, (thread, *_) in row.writers.items():
                yield Mark(number, index, f"thread {thread} overwrites {row.array.element(index)}, an input")


def _readers(rows: list[Row], row: Row, index: int) -> set[int]:
    """Return the threads that read an element of a row's array."""
    return {thread for other in rows if other.array is row.array for thread in other.readers.get(index, ())}


def missing(traced: Traced, number: int) -> dict[tuple[str, int], list[tuple[int, str]]]:
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
