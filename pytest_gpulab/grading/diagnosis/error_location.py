"""Positions of wrong elements: the last block, the same position in each block, every 32nd element, and others."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.errors import with_axes
from pytest_gpulab.grading.findings import listed

from . import causes
from .coincidence import LEAST_BITS, PLACE_BITS, place_bits
from .patterns import WARP, Pattern, Tiling

Mask = npt.NDArray[Any]

PERIODS = tuple(2**k for k in range(1, 11))  # warps, blocks and strides are powers of two
MAX_NAMED = 3
UNLIKELY = 1000.0  # odds against scattered elements that lie in these blocks by chance


@dataclass(frozen=True)
class Axis:
    """A row of elements (or of columns, or of rows), some of them wrong."""

    mask: Mask  # True for the wrong ones; neither none nor all
    tile: int | None = None  # count per block, if known
    noun: str = "element"  # the word for one of them, in the singular

    @property
    def at(self) -> Mask:
        """The indices of the wrong ones."""
        return np.flatnonzero(self.mask)

    @property
    def blocks(self) -> int:
        """The number of blocks; 1 if unknown."""
        return -(-self.mask.size // self.tile) if self.tile else 1

    @property
    def block(self) -> str:
        """The word for a tile of them."""
        return "block" if self.noun == "element" else f"{self.noun} of blocks"

    def named(self, block: int, start: int, stop: int) -> str:
        """Return the words for a range and its block: `block 2, elements 64 to 95`, or `columns 64 to 95`."""
        elements = self.range(start, stop)
        return f"block {block}, {elements}" if self.noun == "element" else elements

    def range(self, start: int, stop: int) -> str:
        """Return the words for a range: `elements 3 to 5`, `element 7`."""
        return f"{self.noun} {start}" if stop - start == 1 else f"{self.noun}s {start} to {stop - 1}"


def place_of(wrong: Mask, tiling: Tiling) -> Pattern | None:
    """Return the pattern in the positions of wrong elements, or None."""
    bits = place_bits(int(wrong.sum()), wrong.size)
    if bits < PLACE_BITS:  # all, none, or too few for a pattern
        return None
    if wrong.ndim == 2:
        found = _in_a_plane(wrong, tiling) if min(wrong.shape) > 1 else _in_a_line(wrong, tiling)
    else:
        tiles = [tile for tile, length in zip(tiling, wrong.shape, strict=True) if length > 1]
        found = _along(Axis(wrong.reshape(-1), tiles[0] if len(tiles) == 1 else None))
    return replace(found, bits=bits) if found and found.cause else found


def pitch_of(unwritten: Mask) -> Pattern | None:
    """Return the pattern of a plane with the pitch of the transposed one if its rows are shorter, else None."""
    if unwritten.ndim != 2 or unwritten.shape[0] >= unwritten.shape[1]:
        return None
    rows, columns = unwritten.shape
    starts_at = (rows - 1) * rows + columns  # of the rest, behind rows that overlap
    if starts_at % columns == 0 or (unwritten.reshape(-1) != (np.arange(unwritten.size) >= starts_at)).any():
        return None
    words = f"just the rest if rows begin every {rows} elements, not every {columns}"
    return Pattern(words, causes.PITCH, bits=place_bits(int(unwritten.sum()), unwritten.size))


def _along(axis: Axis) -> Pattern | None:
    ways: tuple[Callable[[Axis], Pattern | None], ...] = (
        _ends,
        _connected,
        _in_each_block,
        _in_some_blocks,
        _whole_blocks,
        _periodic,
        _both_ends,
        _touched,
    )
    found = (way(axis) for way in ways)
    return next((pattern for pattern in found if pattern), None)


def _ends(axis: Axis) -> Pattern | None:
    """Recognise the first or the last one, and all but the first or the last."""
    for mask, words in ((axis.mask, "only"), (~axis.mask, "all but")):
        at = np.flatnonzero(mask)
        if at.size == 1:
            if at[0] == 0:
                return Pattern(
                    f"{words} the first {axis.noun}", causes.FIRST_ONE if words == "only" else causes.ALL_BUT_FIRST
                )
            is_a_block = axis.noun == "element" and axis.blocks > 1 and at[0] % (axis.tile or 1) == 0
            if at[0] == axis.mask.size - 1 and words == "only" and not is_a_block:
                return Pattern(f"only the last {axis.noun}, {axis.noun} {at[0]}", causes.LAST_ONE)
    return None


def _connected(axis: Axis) -> Pattern | None:
    """Recognise a range without gaps, named by blocks if it begins and ends at block boundaries."""
    start, stop = int(axis.at[0]), int(axis.at[-1]) + 1
    if stop - start != axis.at.size:
        return None
    tile, is_end = axis.tile, stop == axis.mask.size
    if tile and axis.blocks > 1 and start % tile == 0 and (is_end or stop % tile == 0):
        return _some_blocks(axis, start, stop)
    if tile and axis.blocks > 1 and is_end and start // tile == axis.blocks - 1:
        words = f"{axis.range(start, stop)}, the end of the last {axis.block}"
        return Pattern(words, causes.TAIL)
    if is_end:
        if start == WARP:
            return Pattern(f"everything after the first {WARP} {axis.noun}s", causes.OTHER_WARPS)
        cause = causes.TAIL if axis.at.size * 4 < axis.mask.size else causes.FROM_INDEX_ON
        return Pattern(f"the last {axis.at.size} {axis.noun}s, from {axis.noun} {start} on", cause)
    if start == 0:
        cause = causes.START if axis.at.size * 2 < axis.mask.size else ""
        return Pattern(f"the first {axis.at.size} {axis.noun}s, {axis.range(start, stop)}", cause)
    if axis.at.size == 1:
        return _one_within(axis, start)
    similar = axis.mask.size - axis.at.size + 1
    is_chance = place_bits(axis.at.size, axis.mask.size) - np.log2(similar) < PLACE_BITS
    return None if is_chance else Pattern(f"only {axis.range(start, stop)}")


def _one_within(axis: Axis, index: int) -> Pattern | None:
    """Name a single one at an end of its block."""
    tile = axis.tile or 0
    if axis.blocks < 2 or index % tile not in (0, tile - 1):
        return None
    end, cause = ("first", causes.FIRST_OF_BLOCK) if index % tile == 0 else ("last", causes.LAST_OF_BLOCK)
    return Pattern(f"only the {end} {axis.noun} of block {index // tile}", cause)


def _both_ends(axis: Axis) -> Pattern | None:
    """Recognise the first ones together with about as many last ones, unless that is likely."""
    right, size = np.flatnonzero(~axis.mask), axis.mask.size
    start, stop = int(right[0]), int(right[-1]) + 1
    if start == 0 or stop == size or not 1 < right.size == stop - start or abs(start - (size - stop)) > 1:
        return None
    if place_bits(right.size, size) - np.log2(3) < LEAST_BITS:  # there are up to three ways to share them out
        return None
    first, last = (axis.noun if count == 1 else f"{count} {axis.noun}s" for count in (start, size - stop))
    return Pattern(f"the first {first} and the last {last}", causes.BOTH_ENDS)


def _some_blocks(axis: Axis, start: int, stop: int) -> Pattern:
    """Name consecutive blocks with only wrong elements; the tile is known, and there are several blocks."""
    tile = axis.tile or 1
    first, last = start // tile, (stop - 1) // tile
    elements = axis.range(start, stop)
    if last == axis.blocks - 1 and first == last:
        cause = causes.LAST_BLOCK if axis.mask.size % tile else causes.LAST_FULL_BLOCK
        cause = causes.SECOND_BLOCK if last == 1 else cause
        return Pattern(f"only the last {axis.block} ({axis.named(last, start, stop)})", cause)
    if last == axis.blocks - 1:
        words = f"everything after the first {axis.block}" if first == 1 else f"everything from {axis.block} {first} on"
        return Pattern(
            f"{words} ({elements}; {tile} per block)", causes.AFTER_FIRST_BLOCK if first == 1 else causes.FROM_BLOCK_ON
        )
    if first == last:
        words = f"only the first {axis.block}" if first == 0 else f"only one {axis.block}"
        return Pattern(
            f"{words} ({axis.named(first, start, stop)})", causes.FIRST_BLOCK if first == 0 else causes.WHOLE_BLOCKS
        )
    return Pattern(f"only {elements}, {last - first + 1} whole blocks of {tile}", causes.WHOLE_BLOCKS)


def _in_each_block(axis: Axis) -> Pattern | None:
    """Recognise the same positions in every block; the last one may be shorter."""
    tile = axis.tile
    if not tile or axis.at[-1] < tile or tile < 2:
        return None  # one block does not show a repetition
    positions = axis.mask[:tile]
    if not positions.any() or positions.all() or (axis.mask != np.resize(positions, axis.mask.size)).any():
        return None
    at = np.flatnonzero(positions)
    start, stop = int(at[0]), int(at[-1]) + 1
    if stop - start != at.size or _may_repeat_by_chance(axis, tile):
        return None
    which, cause = _part_of_a_block(start, stop, tile, axis.noun)
    return Pattern(f"{which} of every block ({tile} {axis.noun}s per block)", cause)


def _in_some_blocks(axis: Axis) -> Pattern | None:
    """Recognise one position in several blocks; in others, the element may be right by chance."""
    tile, positions = axis.tile, np.unique(axis.at % (axis.tile or 1))
    if not tile or tile < 2 or axis.noun != "element" or axis.at.size < 2 or positions.size > 1:
        return None
    similar = np.log2(tile) + place_bits(axis.at.size, axis.blocks)
    if place_bits(axis.at.size, axis.mask.size) - similar < PLACE_BITS:
        return None
    start = int(positions[0])
    which, cause = _part_of_a_block(start, start + 1, tile, axis.noun)
    return Pattern(f"{which} in {axis.at.size} of {axis.blocks} blocks ({tile} {axis.noun}s per block)", cause)


def _may_repeat_by_chance(axis: Axis, period: int) -> bool:
    """Return True if wrong elements at random places often repeat in this way, as measured by `PLACE_BITS`."""
    in_rest = np.resize(axis.mask[:period], 2 * period).cumsum()  # of the last, shorter period, per shift
    rest = axis.mask.size % period
    counts = in_rest[rest : rest + period] - in_rest[:period]
    similar = int((counts == counts[-1]).sum())
    return bool(place_bits(axis.at.size, axis.mask.size) - np.log2(similar) < PLACE_BITS)


def _part_of_a_block(start: int, stop: int, tile: int, noun: str) -> tuple[str, str]:
    if stop - start == 1:
        known = {0: (f"the first {noun}", causes.FIRST_OF_BLOCK), tile - 1: (f"the last {noun}", causes.LAST_OF_BLOCK)}
        return known.get(start, (f"{noun} {start}", causes.IN_EACH_BLOCK))
    if start == 1 and stop == tile:
        return f"all but the first {noun}", causes.FIRST_OF_BLOCK
    if start == WARP and stop == tile and tile > 2 * WARP:
        return f"all but the first {WARP} {noun}s", causes.OTHER_WARPS
    if (start, stop) == (tile // 2, tile):
        return "the second half", causes.IN_EACH_BLOCK
    if (start, stop) == (0, tile // 2):
        return "the first half", causes.IN_EACH_BLOCK
    return f"{noun}s {start} to {stop - 1}", causes.IN_EACH_BLOCK


def _periodic(axis: Axis) -> Pattern | None:
    """Recognise equal distances, and repetitions after 2, 4, 8, ... elements."""
    at, size = axis.at, axis.mask.size
    step = int(at[1] - at[0]) if at.size > 1 else 0
    if (
        (at.size > 2 or step == WARP)
        and step > 1
        and (np.diff(at) == step).all()
        and at[0] < step
        and at[-1] + step >= size
    ):
        cause = causes.LANE if step == WARP else causes.STRIDED
        return Pattern(f"every {ordinal(step)} {axis.noun}, from {axis.noun} {at[0]} on", cause)
    for period in PERIODS:
        if 2 * period > size:
            break
        unit = axis.mask[:period]
        if (axis.mask == np.resize(unit, size)).all() and not _may_repeat_by_chance(axis, period):
            words = _repeated(np.flatnonzero(unit), period, axis.noun)
            return (
                Pattern(
                    words, causes.STRIDED if period < WARP else causes.LANE if period == WARP else causes.IN_EACH_BLOCK
                )
                if words
                else None
            )
    return None


def _repeated(at: Mask, period: int, noun: str) -> str:
    start, stop = int(at[0]), int(at[-1]) + 1
    if at.size == 1:
        return ""  # only two: too few for a pattern
    if at.size == period - 1:
        (right,) = set(range(period)) - set(at.tolist())
        return f"all but every {ordinal(period)} {noun} (index % {period} == {right})"
    if stop - start == at.size:
        return f"{noun}s {start} to {stop - 1} of every {period}"
    if at.size <= MAX_NAMED + 1:
        return f"{noun}s with index % {period} == {listed(at.tolist(), 'or')}"
    return ""


def _whole_blocks(axis: Axis) -> Pattern | None:
    """Recognise blocks with only wrong elements beside blocks with only correct ones."""
    if axis.blocks < 3 or axis.noun != "element":
        return None
    block = np.arange(axis.mask.size) // (axis.tile or 1)
    touched = np.unique(block[axis.mask])
    if touched.size == axis.blocks or (np.isin(block, touched) != axis.mask).any():
        return None
    return Pattern(_named_blocks(touched.tolist(), axis.blocks), causes.WHOLE_BLOCKS)


def _touched(axis: Axis) -> Pattern | None:
    """Name the blocks with the scattered elements: a single one, or all from one on, if hardly by chance."""
    if axis.blocks < 3 or axis.noun != "element":
        return None
    touched = np.unique(axis.at // (axis.tile or 1))
    if touched.size == 1 and axis.blocks ** (axis.at.size - 1.0) > UNLIKELY:
        is_last = touched[0] == axis.blocks - 1
        which, cause = ("the last block", causes.LAST_BLOCK) if is_last else ("the same block", causes.IN_EACH_BLOCK)
        return Pattern(f"all of them in {which} (block {touched[0]})", cause)
    if touched[0] > 0 and axis.at.size > np.log(UNLIKELY) * axis.blocks and touched.size == axis.blocks - touched[0]:
        after = "the first block" if touched[0] == 1 else f"block {touched[0] - 1}"
        return Pattern(f"all of them after {after} ({axis.tile} {axis.noun}s per block)", causes.AFTER_FIRST_BLOCK)
    return None


def _named_blocks(wrong: list[int], blocks: int) -> str:
    right = [block for block in range(blocks) if block not in wrong]
    if len(right) <= MAX_NAMED < len(wrong):
        return f"all blocks but {listed(right, 'and')}, these altogether"
    named = listed(wrong, "and") if len(wrong) <= MAX_NAMED else f"{', '.join(map(str, wrong[:MAX_NAMED]))} and more"
    return f"{len(wrong)} of {blocks} blocks, these altogether: {named}"


def _in_a_plane(wrong: Mask, tiling: Tiling) -> Pattern | None:
    """Recognise columns, rows, both edges together, and all but the diagonal."""
    columns, rows = _any(wrong)
    if (wrong == np.outer(rows, columns)).all():
        if rows.all():
            return _edge(Axis(columns, tiling[1], "column"), causes.LAST_COLUMNS)
        if columns.all():
            return _edge(Axis(rows, tiling[0], "row"), causes.LAST_ROWS)
    right = ~wrong
    if right.sum() == 1:
        return Pattern(f"all but the element ({with_axes(np.argwhere(right)[0].tolist())})")
    good_columns, good_rows = _any(right)
    if right.any() and (right == np.outer(good_rows, good_columns)).all() and not good_rows.all():
        of_one = (int(good_rows.sum()), int(good_columns.sum()))
        is_beyond_an_edge = all(length > tile + 1 for length, tile in zip(right.shape, of_one, strict=True))
        if tiling == of_one and right[0, 0] and is_beyond_an_edge:
            return Pattern(
                f"everything beyond the first block ({of_one[1]} x {of_one[0]} elements)", causes.BLOCK_LEFT_OUT
            )
        below, beside = _along(Axis(~good_rows, None, "row")), _along(Axis(~good_columns, None, "column"))
        if not below or not beside:
            return None
        lengths = zip(of_one, right.shape, tiling, strict=True)
        if all(2 * count < length and count < (tile or length) for count, length, tile in lengths):
            ends = _end(good_columns, "column"), _end(good_rows, "row")
            if all(ends):
                return Pattern(f"all but {ends[0]} of {ends[1]}", causes.CORNER)
        corners = {(False, False): causes.LAST_COLUMNS, (True, True): causes.FIRST_EDGES}  # are the first ones wrong?
        cause = corners.get((not good_rows[0], not good_columns[0]), "")
        is_frame = below.cause == beside.cause == causes.BOTH_ENDS
        return Pattern(f"{beside.what}, and {below.what}", causes.BOTH_ENDS if is_frame else cause)
    return _diagonal(right, tiling)


def _end(mask: Mask, noun: str) -> str:
    """Return the words for a few rows or columns at one end."""
    count = int(mask.sum())
    which = "first" if mask[:count].all() else "last" if mask[-count:].all() else ""
    return which and f"the {which} {f'{count} {noun}s' if count > 1 else noun}"


def _in_a_line(wrong: Mask, tiling: Tiling) -> Pattern | None:
    """Return the pattern of a plane with one row or one column."""
    is_row = wrong.shape[0] == 1
    axis = Axis(wrong.reshape(-1), tiling[1 if is_row else 0], "column" if is_row else "row")
    return _edge(axis, causes.LAST_COLUMNS if is_row else causes.LAST_ROWS)


def _diagonal(right: Mask, tiling: Tiling) -> Pattern | None:
    """Recognise a correct diagonal beside wrong elements, in the plane or in each block."""
    y, x = np.indices(right.shape)
    if (right == (y == x)).all():
        return Pattern("all but the diagonal", causes.OFF_DIAGONAL)
    rows, columns = tiling
    if rows and columns and min(rows, columns) > 1 and (right == (y % rows == x % columns)).all():
        return Pattern(f"all but the diagonal of every block ({columns} x {rows} elements)", causes.SAME_INDEX)
    return None


def _any(mask: Mask) -> tuple[Mask, Mask]:
    """Return which columns and which rows have a wrong element."""
    return np.asarray(mask.any(axis=0)), np.asarray(mask.any(axis=1))


def _edge(axis: Axis, cause: str) -> Pattern | None:
    pattern, count, size = _along(axis), axis.at.size, axis.mask.size
    is_tail = count * (2 if axis.tile or count == 1 else 4) < size and axis.at[0] == size - count
    if axis.tile:  # an edge ends within the last block, or is narrow, such as the halo of a stencil
        is_tail &= count < axis.tile and (axis.at[0] // axis.tile == axis.blocks - 1 or 2 * count <= axis.tile)
    right = np.flatnonzero(~axis.mask)
    is_one_end = right[-1] - right[0] < right.size and (right[0] == 0) != (right[-1] == size - 1)
    if is_one_end and 1 < right.size < min(axis.tile or size, size / 3) and (not axis.tile or count % axis.tile):
        which = "first" if right[0] == 0 else "last"
        return Pattern(f"all but the {which} {right.size} {axis.noun}s", causes.NO_NEIGHBOURS)
    general = causes.IN_X if axis.noun == "column" else causes.IN_Y
    if pattern and pattern.cause != causes.BOTH_ENDS:
        return Pattern(pattern.what, cause if is_tail else general)
    return pattern


def ordinal(number: int) -> str:
    """Return `2nd`, `32nd`, `11th`, ..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
