"""Matrix instructions of warps: `wmma`, `mma`, `ldmatrix`, `stmatrix`, `movmatrix` (PTX ISA 9.7.14).

Products and their sum are exact. A float32 result is then truncated towards zero, as by hardware. A float16 result is
rounded to the nearest. Hardware also truncates summands, in an order that NVIDIA does not specify. So results agree
within a tolerance, and bit for bit where all sums are integers of 24 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.arithmetic.floats import canonical
from pytest_gpulab.devices.simulated.arithmetic.halves import pack
from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Subset, Value, from_warps, to_warps
from pytest_gpulab.devices.simulated.translation import fragments
from pytest_gpulab.devices.simulated.translation.fragments import ELEMENTS, Fragment

from .collectives import activemask

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.wave import Wave
    from pytest_gpulab.devices.simulated.translation.sites import Site

INCOMPLETE = "divergent threads in warp: a tensor-core operation needs all 32 threads of the warp"
_ALL_LANES = 0xFFFFFFFF
_TF32 = np.uint32(0xFFFFE000)  # the bits of a float32 that tf32 has
_FLOAT32 = ~np.uint64((1 << 29) - 1)  # the bits of a float64 that a float32 has
_HALF = np.dtype(np.uint16)
_WORD = np.dtype(np.uint32)
_WORDS = 4  # per line of a tile
Elements = npt.NDArray[Any]  # (warps, blocks, lanes, elements)


def load_matrix(
    wave: Wave, lanes: Lanes, site: Site, fragment: tuple[str, str, str], layout: str, count: int, base: Value,
    stride: Value,
) -> list[Value]:  # fmt: skip
    """`wmma.load`: return the registers of each lane for the `Fragment` with these arguments, in `row` or `col` layout.

    `count` is the registers per lane: some fragments hold all elements several times. `base` is the address of the
    matrix, `stride` the elements between the starts of two lines in memory.
    """
    _need_whole_warps(wave, lanes, site)
    part = Fragment(*fragment)
    in_shared = site.space == "shared"
    accesses = fragments.accesses(part, layout, in_shared)
    dtype = _unit(part, accesses.count)
    subset = lanes.subset(lanes.laneid < np.uint32(accesses.active)) if accesses.active < WARP else None
    read = subset.lanes if subset is not None else lanes
    found: list[Value] = []
    for address in _addresses(read, subset, part, accesses, base, stride):
        words = accesses.count * part.nbytes // dtype.itemsize
        found += getattr(wave, f"load_{site.space}")(read, site, address, dtype, words)
    table = np.tile(fragments.loaded(part, layout, in_shared), (1, count // part.registers))
    return _regrouped(lanes, _elements(read, found, ELEMENTS[part.kind]), table, part.register)


def store_matrix(
    wave: Wave, lanes: Lanes, site: Site, fragment: tuple[str, str, str], layout: str, base: Value, stride: Value,
    values: list[Value],
) -> None:  # fmt: skip
    """`wmma.store`: write the registers of each lane; see `load_matrix`."""
    _need_whole_warps(wave, lanes, site)
    part = Fragment(*fragment)
    accesses = fragments.accesses(part, layout, False)
    dtype = _unit(part, accesses.count)
    table = fragments.stored(part, layout)
    units = _regrouped(lanes, _elements(lanes, values, ELEMENTS[part.kind]), table, dtype.str[1:])
    each = len(units) // accesses.lines.shape[1]
    for number, address in enumerate(_addresses(lanes, None, part, accesses, base, stride)):
        getattr(wave, f"store_{site.space}")(lanes, site, address, units[number * each : (number + 1) * each])


def _unit(part: Fragment, count: int) -> np.dtype[Any]:
    """Return the type of one read of `count` neighbouring elements: a word, or a smaller element."""
    return np.dtype(ELEMENTS[part.kind] if part.nbytes == 8 or part.nbytes * count < 4 else _WORD)


def _addresses(
    lanes: Lanes, subset: Subset | None, part: Fragment, accesses: fragments.Accesses, base: Value, stride: Value
) -> list[Value]:
    if subset is not None:
        base, stride = subset.take(base), subset.take(stride)
    kind, lane = base.dtype, lanes.threads % WARP
    step = stride.astype(kind) * kind.type(part.nbytes)
    return [
        base + line.astype(kind).reshape(-1, 1) * step + (start * part.nbytes).astype(kind).reshape(-1, 1)
        for line, start in zip(accesses.lines[lane].T, accesses.starts[lane].T, strict=True)
    ]


def multiply(
    wave: Wave, lanes: Lanes, site: Site, shape: str, kinds: tuple[str, str, str, str], saturates: bool,
    a: list[Value], b: list[Value], c: list[Value],
) -> list[Value]:  # fmt: skip
    """`wmma.mma` and `mma`: return the registers of D = A B + C for a shape such as `m16n8k16`.

    `kinds` are the types of D, A, B and C. Integers saturate or wrap around. `a`, `b`, `c` are registers.
    """
    _need_whole_warps(wave, lanes, site)
    d, *parts = (Fragment(matrix, shape, kind) for matrix, kind in zip("dabc", kinds, strict=True))
    left, right, addend = (_matrix(lanes, part, values) for part, values in zip(parts, (a, b, c), strict=True))
    total = left @ right + addend
    bits = _BITS_OF[d.kind](np.ascontiguousarray(total.swapaxes(2, 3)) if d.by_columns else total, saturates)
    return _regrouped(lanes, bits.reshape(*bits.shape[:2], -1), fragments.places(d), d.register)


def _matrix(lanes: Lanes, part: Fragment, values: list[Value]) -> Elements:
    """Return the numbers of a matrix as float64, (warps, blocks, rows, columns)."""
    held = fragments.places(part)
    elements = _elements(lanes, values[: part.registers], ELEMENTS[part.kind])
    flat = elements.take(fragments.inverted(held, held.size), axis=2)
    numbers: Elements = _NUMBERS_OF[part.kind](flat).reshape(*flat.shape[:2], part.lines, part.length)
    return numbers.swapaxes(2, 3) if part.by_columns else numbers


_NUMBERS_OF: dict[str, Any] = {
    "f16": lambda bits: bits.view(np.float16).astype(np.float64),
    "bf16": lambda bits: (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64),
    "tf32": lambda bits: (bits & _TF32).view(np.float32).astype(np.float64),
    "f32": lambda bits: bits.view(np.float32).astype(np.float64),
    "f64": lambda bits: bits.view(np.float64),
    "s8": lambda bits: bits.view(np.int8).astype(np.float64),
    "u8": lambda bits: bits.astype(np.float64),
    "s32": lambda bits: bits.view(np.int32).astype(np.float64),
}


def _float32(total: Elements, saturates: bool) -> Elements:
    cut_off = (total.view(np.uint64) & _FLOAT32).view(np.float64)
    result: Elements = canonical(np.where(np.isfinite(total), cut_off, total).astype(np.float32)).view(np.uint32)
    return result


def _int32(total: Elements, saturates: bool) -> Elements:
    total = np.clip(total, -(2.0**31), 2.0**31 - 1) if saturates else total
    result: Elements = total.astype(np.int64).astype(np.uint32)
    return result


_BITS_OF: dict[str, Any] = {
    "f16": lambda total, _: pack(total, "f16"),
    "f32": _float32,
    "f64": lambda total, _: total.view(np.uint64),
    "s32": _int32,
}


def load_tiles(wave: Wave, lanes: Lanes, site: Site, tiles: int, transposed: bool, address: Value) -> list[Value]:
    """`ldmatrix`: return the registers of each lane; `address` has the address of a line of a tile per lane."""
    _need_whole_warps(wave, lanes, site)
    subset = lanes.subset(lanes.laneid < np.uint32(8 * tiles))
    read = getattr(wave, f"load_{site.space}")(subset.lanes, site, subset.take(address), _WORD, _WORDS)
    return _regrouped(lanes, _elements(subset.lanes, read, "u2"), fragments.lines_of_tiles(tiles, transposed), "u4")


def store_tiles(
    wave: Wave, lanes: Lanes, site: Site, tiles: int, transposed: bool, address: Value, values: list[Value]
) -> None:
    """`stmatrix`: write registers to tiles; `address` has the address of a line of a tile per lane."""
    _need_whole_warps(wave, lanes, site)
    held = fragments.lines_of_tiles(tiles, transposed)
    table = np.zeros((WARP, 8), np.intp)
    table[: 8 * tiles] = fragments.inverted(held, held.size).reshape(-1, 8)
    subset = lanes.subset(lanes.laneid < np.uint32(8 * tiles))
    words = [subset.take(word) for word in _regrouped(lanes, _elements(lanes, values, "u2"), table, "u4")]
    getattr(wave, f"store_{site.space}")(subset.lanes, site, subset.take(address), words)


def transpose_tile(wave: Wave, lanes: Lanes, site: Site, value: Value) -> Value:
    """`movmatrix`: return the registers of the transposed tile."""
    _need_whole_warps(wave, lanes, site)
    held = fragments.inverted(fragments.lines_of_tiles(1, False), 64)
    return _regrouped(lanes, _elements(lanes, [value], "u2"), held[fragments.lines_of_tiles(1, True)], "u4")[0]


def _elements(lanes: Lanes, values: list[Value], code: str) -> Elements:
    """Return the elements in some registers, ordered by the lanes of each warp."""
    grids = [to_warps(lanes, value, 0) for value in values]
    width = max(grid.shape[2] for grid in grids)
    words = np.empty((len(grids[0]), width, WARP, len(grids)), grids[0].dtype)
    for number, grid in enumerate(grids):
        words[..., number] = grid.transpose(0, 2, 1)
    elements: Elements = words.view(code).reshape(*words.shape[:2], -1)
    return elements


def _regrouped(lanes: Lanes, elements: Elements, table: IndexArray, code: str) -> list[Value]:
    """Return registers of a type, filled with elements by their numbers in a table (lanes, elements)."""
    moved: Elements = elements.take(table.ravel(), axis=2).view(code)
    grids = moved.reshape(*moved.shape[:2], WARP, -1)
    return [from_warps(lanes, grids[..., number].transpose(0, 2, 1)) for number in range(grids.shape[3])]


def _need_whole_warps(wave: Wave, lanes: Lanes, site: Site) -> None:
    """Record a hazard if lanes of a warp are missing: they have diverged or exited, or the block has no such thread."""
    if not lanes.whole_warps and (missing := activemask(lanes) != np.uint32(_ALL_LANES)).any():
        wave.note_lanes(INCOMPLETE, site.where, lanes, missing)
