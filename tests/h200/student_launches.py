"""The launches behind student_counters.json ("small") and student_times.json ("large"); kernels: student_kernels.cu.

Kernels of the kinds that courses ask for. The estimates were written down before the times were taken.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import F, I, Row, U, floats, zeros

D = np.float64
ELEMENTS = {"small": 1 << 13, "large": 1 << 22}
SIDES = {"small": 64, "large": 2048}


def launches(size: str = "large") -> Iterator[Row]:
    for family in (atomics, histograms, scans, reductions, constants, arithmetic):
        yield from family(ELEMENTS[size])
    yield from paths(ELEMENTS[size])
    yield from rounds(ELEMENTS[size])
    yield from banks(*((8, 32) if size == "small" else (1056, 128)))
    yield from matrices(SIDES[size])


def random_words(n) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << 20, n, dtype=U)


def row(family, name, n, *args, block=256, grid=None, shared_bytes=0, kernel=None, **constants) -> Row:
    return Row(name, family, kernel or name, (grid or n // block,), (block,), args, shared_bytes, constants)


def grid_of(n) -> int:
    return min(n // 1024, 528)


def atomics(n) -> Iterator[Row]:
    x = random_words(n)
    yield row("atomics", "count_odd", n, x, zeros(1, U), U(n))
    yield row("atomics", "filter_each", n, x, zeros(n, U), zeros(1, U), U(n))
    yield row("atomics", "filter_warps", n, x, zeros(n, U), zeros(1, U), U(n))
    yield row("atomics", "largest", n, x.view(I), zeros(1, I), U(n))
    for groups in (16, 1024):
        args = (x[: n // 4], floats(n // 4), zeros(1024), U(n // 4), U(groups))
        yield row("atomics", f"sums_by_key_{groups}", n, *args, grid=grid_of(n), kernel="sums_by_key")
    yield row("atomics", "dot_product", n, floats(n).astype(D), floats(n).astype(D), zeros(1, D), U(n), grid=grid_of(n))


def histograms(n) -> Iterator[Row]:
    x = random_words(n)
    for items in (1, 4, 16, 32):
        for bins in (256, 10):
            args = (x, zeros(256, U), U(n), U(bins))
            name = f"histogram_{items}"
            yield row("histograms", f"{name}_of_{bins}", n, *args, grid=n // 256 // items, kernel=name)
    yield row("histograms", "histogram_of_warps", n, x, zeros(256, U), U(n), grid=grid_of(n))


def paths(n) -> Iterator[Row]:
    x, kinds = floats(n), random_words(n)
    for count in (2, 4, 8):
        yield row("paths", f"paths_of_lanes_{count}", n, x, zeros(n), U(n), U(count), kernel="paths_of_lanes")
        yield row("paths", f"paths_of_warps_{count}", n, x, zeros(n), U(n), U(count), kernel="paths_of_warps")
        yield row("paths", f"paths_of_data_{count}", n, kinds, x, zeros(n), U(n), U(count), kernel="paths_of_data")
    yield row("paths", "even_or_odd", n, x, zeros(n), U(n))


def rounds(n) -> Iterator[Row]:
    codes = np.random.default_rng(11).integers(0, 1 << 20, n, dtype=I)
    yield row("rounds", "machine_of_lanes", n, codes, zeros(n), I(n), I(24), kernel="machine")
    yield row("rounds", "machine_in_step", n, zeros(n, I), zeros(n), I(n), I(24), kernel="machine")
    yield row("rounds", "collatz", n // 4, zeros(n // 4, U), U(n // 4))
    yield row("rounds", "sort_own", n // 16, floats(n // 16 * 12), I(n // 16))


def constants(n) -> Iterator[Row]:
    held = {"table": floats(1024), "weights": floats(25)}
    x, side = floats(n), int(n**0.5) // 32 * 32
    yield row("constants", "polynomial", n, x, zeros(n), U(n), I(31), **held)
    yield row("constants", "table_of_lanes", n, x, zeros(n), U(n), I(8), **held)
    for size in (16, 256):
        args = (random_words(n), zeros(n), U(n), U(size))
        yield row("constants", f"table_of_data_{size}", n, *args, kernel="table_of_data", **held)
    args = (x[: side * side], zeros(side * side), I(side), I(side))
    yield Row("blur_constant", "constants", "blur_constant", (side // 32, side // 8), (32, 8), args, 0, held)


def scans(n) -> Iterator[Row]:
    x = floats(n)
    for size in (512, 2048):
        padded = 4 * (size + size // 32)
        for name in ("blelloch", "blelloch_padded"):
            shared_bytes = padded if name.endswith("padded") else 4 * size
            yield row("scans", f"{name}_{size}", n, x, zeros(n), I(size), kernel=name, block=size // 2,
                      grid=n // size, shared_bytes=shared_bytes)  # fmt: skip
    for block in (256, 1024):
        for name in ("hillis_steele", "scan_by_shuffles"):
            shared_bytes = 8 * block if name == "hillis_steele" else 0
            yield row("scans", f"{name}_{block}", n, x, zeros(n), I(n), kernel=name, block=block,
                      shared_bytes=shared_bytes)  # fmt: skip


def reductions(n) -> Iterator[Row]:
    x = floats(n)
    for name in ("tree_modulo", "tree_strided", "tree_sequential"):
        for block in (128, 512):
            yield row("reductions", f"{name}_{block}", n, x, zeros(n // block), kernel=name, block=block)
    for name in ("sum_last_block", "sum_last_block_system"):
        yield row("reductions", name, n, x, zeros(n // 256), zeros(1), zeros(1, U), U(n), grid=n // 2048)
    for name in ("publish", "publish_system"):
        yield row("fences", name, n, x, zeros(n), zeros(n // 256, U), U(n))


def banks(blocks, rounds) -> Iterator[Row]:
    for stride in (1, 2, 4, 8, 16, 32):
        for name in ("bank_stores", "bank_loads", "bank_updates"):
            args = (zeros(256 * blocks), U(stride), I(rounds))
            yield row("banks", f"{name}_{stride}", 256 * blocks, *args, kernel=name)


def matrices(side) -> Iterator[Row]:
    def square(name, block, n=side, arrays=1) -> Row:
        inputs = (floats(n * n),) * arrays
        grid = (n // block[0], n // block[1])
        return Row(name, "matrices", name, grid, block, (*inputs, zeros(n * n), I(n)))

    yield square("matrix_sum_rows", (32, 8), arrays=2)
    yield square("matrix_sum_columns", (32, 8), arrays=2)
    small = min(side, 512)
    yield square("product_plain", (16, 16), small, 2)
    yield square("product_tiled_16", (16, 16), small, 2)
    yield square("product_tiled_32", (32, 32), small, 2)
    yield square("transpose_conflicts", (32, 32))
    yield square("transpose_without_conflicts", (32, 32))
    yield Row("transpose_store_conflicts", "matrices", "transpose_store_conflicts", (side // 32, side // 32), (32, 8),
              (floats(side * side), zeros(side * side), I(side)))  # fmt: skip
    yield square("transpose_direct", (32, 8))
    yield square("stencil_plane_global", (32, 8))
    yield square("stencil_plane_shared", (16, 16))


def arithmetic(n) -> Iterator[Row]:
    x = floats(n)
    for name in ("stencil_line_global", "stencil_line_shared", "median_of_nine"):
        yield row("arithmetic", name, n, x, zeros(n), I(n))
    yield row("arithmetic", "saxpy", n, F(2), x, floats(n), U(n), grid=grid_of(n))
    yield row("arithmetic", "saxpy_chunks", n, F(2), x, floats(n), U(16), grid=n // 256 // 16)
    yield row("arithmetic", "divide", n, x, floats(n), zeros(n), U(n), I(16))
    yield row("arithmetic", "divide_integers", n, random_words(n), zeros(n, U), U(n), U(7))
    yield row("arithmetic", "sigmoid", n, x, zeros(n), U(n), grid=grid_of(n))
    yield row("arithmetic", "polynomial_double", n, x.astype(D), zeros(n, D), U(n), I(32))
    yield row("arithmetic", "double_by_mistake", n, x, zeros(n), U(n))
    yield row("arithmetic", "bins_of_thread", n, random_words(n), zeros(n, U), U(16), grid=n // 256 // 16)
