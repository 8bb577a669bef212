"""The launches behind variants_times.json, in two sizes each; kernels: variants_kernels.cu.

Naive and improved variants of one task, as students and instructors write them. The estimates were written down before
the times were taken.
"""

from collections.abc import Iterator

import numpy as np
from course_launches import B, D, H, drawn
from exam_launches import Launches, line, sheet
from more_launches import F, I, Row, U, floats, zeros

L = np.int64
SIZES = {"small": (1 << 13, 64), "medium": (1 << 17, 256), "large": (1 << 22, 2048)}


def launches(size: str = "") -> Iterator[Row]:
    """Yield the launches of a size, by default those of both sizes that are timed."""
    families = (
        sums,
        extremes,
        bins,
        weights,
        scans,
        rows,
        lines,
        planes,
        tables,
        series,
        branches,
        loops,
        products,
        vectors,
        additions,
        shapes,
    )
    for chosen in (size,) if size else ("medium", "large"):
        for family in families:
            for name, launch in family(*SIZES[chosen]):
                kernel = "axpy_strided" if name.startswith("axpy_strided") else name
                yield launch(family.__name__, f"{name}_{chosen}", kernel=kernel)


def sums(n, side) -> Launches:
    x = floats(n)
    yield line("sum_modulo", n, x.astype(D), zeros(n // 256, D), I(n))
    yield line("sum_strided_index", n, x.astype(D), zeros(n // 256, D), I(n))
    yield line("sum_first_add", n // 2, x.astype(D), zeros(n // 512, D), I(n))
    yield line("sum_long_long", n, drawn(n, 1000, L), zeros(1, L), I(n), grid=min(n // 512, 264))
    yield line("sum_halves", n, x.astype(H), zeros(1), I(n), grid=min(n // 1024, 264))
    yield line("sum_half_pairs", n, x.astype(H), zeros(1), I(n), grid=min(n // 1024, 264))


def extremes(n, side) -> Launches:
    x = drawn(n, 1 << 30, I)
    yield line("minimum_each", n, x, np.full(1, 1 << 30, I), I(n))
    yield line("minimum_of_blocks", n, x, np.full(1, 1 << 30, I), I(n))
    yield line("minimum_of_warps", n, x, np.full(1, 1 << 30, I), I(n), grid=min(n // 1024, 528))
    yield line("maximum_double_cas", n, floats(n).astype(D), zeros(1, D), I(n))
    yield line("sum_with_lock", n, floats(n), zeros(1), zeros(1, I), I(n), grid=min(n // 2048, 132))


def bins(n, side) -> Launches:
    data, grid = drawn(n, 256, B), min(n // 2048, 264)
    yield line("bytes_global", n, data, zeros(256, U), I(n))
    yield line("bytes_shared", n, data, zeros(256, U), I(n), grid=grid)
    yield line("bytes_replicated", n, data, zeros(256, U), I(n), grid=grid)


def weights(n, side) -> Launches:
    n //= 8
    weight, key = floats(n).astype(D), drawn(n, 256, B)
    yield line("weights_shared", n, weight, key, zeros(32, D), I(n), grid=min(n // 1024, 132))
    yield line("weights_global", n, weight, key, zeros(32, D), I(n))
    yield line("products_cas", n, floats(n) / F(256), drawn(n, 4096, I), np.full(4096, 1.0, F), I(n))


def scans(n, side) -> Launches:
    x, out = drawn(n, 100, I), zeros(n, I)
    yield line("scan_tree_conflicts", n // 2, x, out, zeros(n // 512, I))
    yield line("scan_tree_padded", n // 2, x, out, zeros(n // 512, I))
    yield line("scan_in_place_doubles", n, floats(n).astype(D), zeros(n, D), I(n), shared_bytes=2048)
    yield line("scan_warps_long", n, drawn(n, 100, L), zeros(n, L), I(n), block=128)


def rows(n, side) -> Launches:
    image = drawn(side * side, 100, I), zeros(side * side, I), I(side), I(side)
    yield line("scan_each_row", side, *image, block=64)
    yield line("scan_each_column", side, *image, block=64)


def lines(n, side) -> Launches:
    taps = np.full(7, 0.125, F)
    yield line("seven_global", n, floats(n), zeros(n), I(n), taps=taps)
    yield line("seven_shared", n, floats(n), zeros(n), I(n), taps=taps)


def planes(n, side) -> Launches:
    plate = floats(side * side).astype(D), zeros(side * side, D), I(side), I(side)
    image = drawn(side * side, 256, B), zeros(side * side, B), I(side), I(side)
    yield sheet("laplace_global", side, *plate, block=(16, 16))
    yield sheet("laplace_shared", side, *plate, block=(16, 16))
    yield sheet("smooth_rows", side, *image, block=(32, 8))
    yield sheet("smooth_columns", side, *image, block=(32, 8))


def tables(n, side) -> Launches:
    data, table = drawn(n, 256, B), drawn(256, 1000, I, seed=3)
    yield line("table_constant", n, data, zeros(n, I), I(n), lut=table)
    yield line("table_global", n, data, table, zeros(n, I), I(n))
    yield line("table_shared", n, data, table, zeros(n, I), I(n), grid=min(n // 1024, 1056))


def series(n, side) -> Launches:
    x, terms = floats(n).astype(D), floats(32).astype(D)
    yield line("series_together", n, x, zeros(n, D), I(n), block=128, series=terms)
    yield line("series_by_lane", n, x, zeros(n, D), I(n), block=128, series=terms)
    turn = np.array([0.8, -0.6, 0, 0.6, 0.8, 0, 0, 0, 1], F)
    yield line("points_rotated", n // 4, floats(3 * n // 4), zeros(3 * n // 4), I(n // 4), rotation=turn)


def branches(n, side) -> Launches:
    x = drawn(n, 1 << 20, I)
    yield line("six_ways_lanes", n, x, zeros(n, I), I(n))
    yield line("six_ways_warps", n, x, zeros(n, I), I(n))
    yield line("six_ways_data", n, x, zeros(n, I), I(n))


def loops(n, side) -> Launches:
    yield line("sine_or_root", n, floats(n).astype(D), zeros(n, D), I(n))
    yield line("length_by_lane", n, floats(n), zeros(n), I(n))
    pairs = drawn(n // 16, 1 << 40, L), drawn(n // 16, 1 << 40, L, seed=5)
    yield line("greatest_common", n // 16, *pairs, zeros(n // 16, L), I(n // 16), block=128)


def products(n, side) -> Launches:
    side //= 2
    a, b, c = drawn(side * side, 100, I), drawn(side * side, 100, I, seed=5), zeros(side * side, I)
    halves = floats(side * side).astype(H), floats(side * side)[::-1].astype(H), zeros(side * side)
    yield sheet("product_ints", side, a, b, c, I(side), block=(16, 16))
    yield sheet("product_ints_swapped", side, a, b, c, I(side), block=(16, 16))
    yield sheet("product_ints_tiled", side, a, b, c, I(side), block=(16, 16))
    yield sheet("product_halves", side, *halves, I(side), block=(16, 16))
    yield sheet("product_four_each", side, a, b, c, I(side), block=(32, 4), grid=(side // 32, side // 16))


def vectors(n, side) -> Launches:
    m, v, out = floats(side * side).astype(D), floats(side).astype(D), zeros(side, D)
    yield line("vector_by_threads", side, m, v, out, I(side), I(side), block=64)
    yield line("vector_by_warps", 32 * side, m, v, out, I(side), I(side))


def additions(n, side) -> Launches:
    matrices = drawn(side * side, 100, I), drawn(side * side, 100, I, seed=5), zeros(side * side, I)
    yield line("add_by_rows", side, *matrices, I(side), I(side), block=32)
    yield line("add_by_columns", side, *matrices, I(side), I(side), block=32)


def shapes(n, side) -> Launches:
    x, y = floats(n // 4).astype(D), floats(n // 4)[::-1].astype(D)
    for blocks, threads in ((1, 1024), (16, 128), (264, 32), (132, 512)):
        options = {"grid": blocks, "block": threads}
        yield line(f"axpy_strided_{blocks}", n // 4, D(2), x, y, I(n // 4), **options)
    yield line("rows_sorted", n // 64, drawn(n // 2, 1000, I), zeros(n // 2, I), block=64)
    yield line("rows_sorted_padded", n // 64, drawn(n // 2, 1000, I), zeros(n // 2, I), block=64)
    yield line("strip_in_shared", n // 8192 * 64, floats(n), zeros(n), I(10), block=64, shared_bytes=32768)
