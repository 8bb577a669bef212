"""The launches behind course_counters.json ("small") and course_times.json ("large"); kernels: course_kernels.cu.

Kernels as course pages and sheets of exercises ask for them. The estimates were written down before the times were
taken.
"""

from collections.abc import Iterator

import numpy as np
from more_launches import F, I, Row, U, floats, zeros

B = np.uint8
ELEMENTS = {"small": 1 << 13, "large": 1 << 22}
SIDES = {"small": 64, "large": 2048}


def launches(size: str = "large") -> Iterator[Row]:
    for family in (sums, scans, paths, constants, histograms, structures, sorting):
        yield from family(ELEMENTS[size])
    yield from stencils(SIDES[size])
    yield from matrices(SIDES[size])


def random_words(n, below=1 << 20, dtype=I) -> np.ndarray:
    return np.random.default_rng(11).integers(0, below, n, dtype=dtype)


def row(family, name, grid, block, *args, kernel=None, **constants) -> Row:
    return Row(name, family, kernel or name, (grid,), (block,), args, 0, constants)


def plane(family, name, side, block, *args, **constants) -> Row:
    return Row(name, family, name, (side // block[0], side // block[1]), block, args, 0, constants)


def few(n) -> int:
    return min(n // 1024, 528)


def sums(n) -> Iterator[Row]:
    x = floats(n)
    for block in (128, 512):
        yield row("sums", f"sum_vectors_{block}", few(n), block, x, zeros(1), I(n))
    for block in (256, 1024):
        args = (x, zeros(n // 2 // block), I(n))
        yield row("sums", f"sum_groups_{block}", n // 2 // block, block, *args, kernel="sum_groups")
    yield row("sums", "sum_thread_zero", n // 256, 256, x, zeros(n // 256), I(n))
    yield row("sums", "sum_in_place", n // 512, 512, x.copy(), I(n))
    yield row("sums", "largest_place", few(n), 256, x, zeros(few(n)), zeros(few(n), I), I(n))
    for blocks in (few(n), n // 512):
        args = (x, zeros(blocks), zeros(1), I(n))
        yield row("sums", f"norm_last_block_{blocks * 512 // n}", blocks, 256, *args, kernel="norm_last_block")


def scans(n) -> Iterator[Row]:
    x = floats(n)
    for block in (256, 1024):
        yield row("scans", f"kogge_stone_{block}", n // block, block, x, zeros(n), I(n), kernel="kogge_stone")
        grid = n // 2 // block
        yield row("scans", f"brent_kung_{block}", grid, block, x, zeros(n), I(n), kernel="brent_kung")
    for block in (128, 512):
        args = (random_words(n), zeros(n, I))
        yield row("scans", f"scan_of_items_{block}", n // 4 // block, block, *args, kernel="scan_of_items")
    yield row("scans", "add_offsets", n // 256, 256, zeros(n), zeros(n // 256), I(n))
    for width in (8, 64):
        yield row("scans", f"moving_sum_{width}", n // 16 // 256, 256, x, zeros(n), I(n), I(width), kernel="moving_sum")


def paths(n) -> Iterator[Row]:
    x, side = floats(n), 64 if n < 1 << 20 else 2048
    yield plane("paths", "mandelbrot", side, (16, 16), zeros(side * side, B), I(side), I(100))
    yield row("paths", "collatz", n // 4 // 256, 256, zeros(n // 4, U), U(n // 4))
    yield row("paths", "calculator", n // 256, 256, random_words(n), x, x, zeros(n), I(n))
    for name, codes in (("machine_of_lanes", random_words(n)), ("machine_in_step", zeros(n, I))):
        yield row("paths", name, n // 256, 256, codes, zeros(n), I(n), I(24), kernel="machine")
    for name, by_warp in (("quadrants_of_lanes", 0), ("quadrants_of_warps", 1)):
        yield row("paths", name, n // 256, 256, x, zeros(n), I(n), I(by_warp), kernel="quadrants")
    yield row("paths", "triangle_loop", n // 256, 256, x, zeros(n), I(n))
    for percent in (3, 90):
        args = (x, zeros(n), I(n), F(percent / 100))
        yield row("paths", f"early_exit_{percent}", n // 256, 256, *args, kernel="early_exit")


def constants(n) -> Iterator[Row]:
    held = {"mask": floats(32), "spheres": floats(192).reshape(64, 3), "centroids": floats(64).reshape(16, 4)}
    x, side = floats(n), 64 if n < 1 << 20 else 2048
    for taps in (5, 31):
        args = (x, zeros(n), I(n), I(taps))
        yield row("constants", f"filter_line_{taps}", n // 256, 256, *args, kernel="filter_line", **held)
    yield row("constants", "nearest_centroid", n // 4 // 256, 256, x, zeros(n // 4, I), I(n // 4), I(16), **held)
    yield plane("constants", "ray_hits", side, (32, 4), zeros(side * side, I), I(side), I(64), **held)
    yield row("constants", "decode", n // 256, 256, random_words(n, 256, B), zeros(n), I(n), **held)


def histograms(n) -> Iterator[Row]:
    text, data = random_words(n, 90, B) + B(38), random_words(n, 256, B)
    for name, grid in (("letters", few(n)), ("letters_global", n // 256)):
        yield row("histograms", name, grid, 256, text, zeros(26, U), I(n))
    for name in ("letters", "letters_global"):
        grid = few(n) if name == "letters" else n // 256
        yield row("histograms", f"{name}_of_one", grid, 256, zeros(n, B) + B(97), zeros(26, U), I(n), kernel=name)
    yield row("histograms", "brightness", few(n), 256, random_words(4 * n, 256, B), zeros(256, U), I(n))
    yield row("histograms", "histogram_private", few(n), 256, data, zeros(8, U), I(n))
    yield row("histograms", "histogram_runs", few(n), 256, data, zeros(64, U), I(n))
    yield row("histograms", "histogram_runs_sorted", few(n), 256, np.sort(data), zeros(64, U), I(n),
              kernel="histogram_runs")  # fmt: skip
    for name, places in (("scatter_add_64", 64), ("scatter_add_all", n // 4)):
        args = (random_words(n // 4, places), floats(n // 4), zeros(n // 4), I(n // 4))
        yield row("scatters", name, n // 4 // 256, 256, *args, kernel="scatter_add")


def stencils(side) -> Iterator[Row]:
    n, x = side * side, floats(side * side)
    yield plane("stencils", "life", side, (32, 8), random_words(n, 2, B), zeros(n, B), I(side))
    yield plane("stencils", "heat_tile", side, (32, 8), x, zeros(n), I(side))
    yield row("stencils", "heat_steps", n // 512, 512, x, zeros(n), I(20))
    deep, flat = (4, 32) if side == 64 else (64, 256)
    yield plane("stencils", "laplace_columns", flat, (32, 4), x, zeros(n), I(flat), I(flat), I(deep))
    yield plane("stencils", "pool_3", side // 2, (16, 16), x, zeros(n // 4), I(side))
    yield plane("stencils", "median_window", side, (16, 16), x, zeros(n), I(side))


def matrices(side) -> Iterator[Row]:
    n, x = side * side, floats(side * side)
    for name, block in (("transpose_swizzled", (32, 8)), ("transpose_16", (16, 16))):
        grid = (side // 32, side // 32) if block[1] == 8 else (side // 16, side // 16)
        yield Row(name, "transposes", name, grid, block, (x, zeros(n), I(side)))
    yield row("transposes", "transpose_rows", side // 64, 64, x, zeros(n), I(side))
    yield row("additions", "matrix_add_coarse", side // 64, 64, x, x, zeros(n), I(side))
    yield row("additions", "matrix_add_row", side // 64, 64, x, x, zeros(n), I(side))
    for name, threads in (("matrix_vector", side), ("matrix_vector_warp", 32 * side), ("matrix_vector_columns", side)):
        yield row("vectors", name, threads // 64, 64, x, floats(side), zeros(side), I(side))
    small = min(side, 512)
    args = (floats(small * small), floats(small * small), zeros(small * small), I(small))
    yield Row("product_wide", "products", "product_wide", (small // 64, small // 16), (16, 16), args)
    yield row("rows", "row_softmax", side, 256, x, zeros(n), I(side))


def structures(n) -> Iterator[Row]:
    yield row("moves", "move_structures", n // 8 // 256, 256, floats(n), I(n // 8), F(0.1))
    arrays = (floats(n // 8).copy() for _ in range(6))
    yield row("moves", "move_arrays", n // 8 // 256, 256, *arrays, I(n // 8), F(0.1))
    bodies = min(n // 4, 8192)
    yield row("arithmetic", "forces", bodies // 128, 128, floats(4 * bodies), zeros(3 * bodies), I(bodies))
    yield row("arithmetic", "circle_points", few(n), 256, zeros(1, U), I(64))
    yield row("arithmetic", "gray", n // 256, 256, random_words(3 * n, 256, B), zeros(n, B), I(n))
    yield row("arithmetic", "options", n // 256, 256, floats(n), zeros(n), zeros(n), I(n))
    yield row("arithmetic", "reverse_shared", n // 256, 256, floats(n), zeros(n))


def sorting(n) -> Iterator[Row]:
    keys = random_words(n)
    yield row("sorts", "bitonic_block", n // 512, 256, keys)
    yield row("sorts", "odd_even_step", n // 512, 256, keys, I(n), I(1))
    yield row("sorts", "sort_own", n // 16 // 256, 256, floats(n // 16 * 12).copy(), I(n // 16))
    rows = n // 16
    lengths = random_words(rows, 17)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(I)
    args = (starts, random_words(int(starts[-1]), rows), floats(int(starts[-1])), floats(rows), zeros(rows), I(rows))
    yield row("searches", "sparse_rows", rows // 128, 128, *args)
    for count in (256, n // 4):
        args = (np.sort(random_words(count)), I(count), keys[: n // 4], zeros(n // 4, I), I(n // 4))
        name = f"search_sorted_{'few' if count == 256 else 'many'}"
        yield row("searches", name, n // 4 // 256, 256, *args, kernel="search_sorted")
