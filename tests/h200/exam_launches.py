"""The launches behind exam_times.json, in two sizes each; kernels: exam_kernels.cu.

Kernels as students write them. The estimates were written down before the times were taken.
"""

from collections.abc import Callable, Iterator

import numpy as np
from course_launches import B, D, drawn, plane, row
from more_launches import F, I, Row, U, floats, zeros

SIZES = {"small": (1 << 13, 64), "medium": (1 << 17, 512), "large": (1 << 22, 2048)}


def launches(size: str = "") -> Iterator[Row]:
    """Yield the launches of a size, by default those of both sizes that are timed."""
    families = reductions, scans, bins, stencils, products, transposes, loops, tables, atomics, few_warps
    for chosen in (size,) if size else ("medium", "large"):
        for family in families:
            for name, launch in family(*SIZES[chosen]):
                yield launch(family.__name__, f"{name}_{chosen}", kernel=name)


Launches = Iterator[tuple[str, Callable[..., Row]]]


def line(name, n, *args, **options) -> tuple[str, Callable[..., Row]]:
    return name, lambda family, title, kernel: row(family, title, n, *args, kernel=kernel, **options)


def sheet(name, side, *args, **options) -> tuple[str, Callable[..., Row]]:
    return name, lambda family, title, kernel: plane(family, title, side, *args, kernel=kernel, **options)


def reductions(n, side) -> Launches:
    x = floats(n)
    yield line("sum_and_squares", n, x, zeros(2), U(n), grid=min(n // 1024, 528))
    yield line("minimum_and_maximum", n, drawn(n, 1 << 30, I), zeros(n // 256, I), zeros(n // 256, I))
    yield line("position_of_maximum", n, x, zeros(n // 256, U))
    yield line("norms_of_rows", side, floats(side * side), zeros(side), I(side), block=128, grid=side)
    yield line("count_by_ballot", n, x, zeros(1, U), F(0.5))
    yield line("means_of_columns", side, floats(side * side), zeros(side), I(side), I(side), block=64)


def scans(n, side) -> Launches:
    x = drawn(n, 1000, I)
    yield line("scan_by_warps", n, x, zeros(n, I))
    yield line("running_maximum", n, x, zeros(n, I))
    yield line("scan_of_one_warp", 32, x, zeros(n, I), I(16 * side), block=32)


def bins(n, side) -> Launches:
    yield line("bins_per_warp", n, drawn(n, 256, B), zeros(64, U), U(n), grid=min(n // 1024, 528))
    yield line("bins_of_points", n, floats(n), floats(n)[::-1].copy(), zeros(1024, U), U(n), grid=min(n // 512, 1056))
    yield line("bins_of_runs", n // 16, np.repeat(drawn(n // 8, 256, B), 8), zeros(256, U))


def stencils(n, side) -> Launches:
    yield sheet("jacobi", side, floats(side * side), floats(side * side), zeros(side * side), I(side))
    yield sheet("nine_points", side, floats(side * side), zeros(side * side), I(side), block=(16, 16))
    yield sheet("erode", side, drawn(side * side, 256, B), zeros(side * side, B), I(side))
    yield line("string_in_one_block", 1024, floats(1024), I(side), block=1024)


def products(n, side) -> Launches:
    half = side // 2
    a = floats(half * half)
    yield sheet("product_with_transposed", half, a, a, zeros(half * half), I(half), block=(16, 16))
    doubles = a.astype(D)
    yield sheet("product_of_doubles", half, doubles, doubles, zeros(half * half, D), I(half), block=(16, 16))
    yield sheet("outer_product", side, floats(side), floats(side), zeros(side * side), I(side))
    yield line("power_of_matrix", n // 16, floats(9 * n // 16), zeros(9 * n // 16), block=128)
    yield sheet("shortest_step", side, floats(side * side), I(side), I(side // 3))


def transposes(n, side) -> Launches:
    letters = drawn(side * side, 256, B)
    tiles = side // 32, side // 32
    yield sheet("transpose_bytes", side, letters, zeros(side * side, B), I(side), grid=tiles)
    yield sheet("transpose_in_place", side, floats(side * side), I(side))
    yield sheet("quarter_turn", side, floats(side * side), zeros(side * side), I(side))


def loops(n, side) -> Launches:
    few = n // 16
    yield line("perfect_numbers", few, drawn(few, 10000, U), zeros(few, B))
    yield line("newton_until_close", n, floats(n), zeros(n))
    yield line("bisect", n, floats(n), zeros(n))
    yield line("random_walk", few, zeros(few, I), I(100))
    dates = drawn(n, 400, I) + I(1800), drawn(n, 12, I), drawn(n, 28, I)
    days = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], I)
    yield line("day_of_year", n, *dates, zeros(n, I), days_before=days)
    lines = drawn(64 * few, 2, B)
    other = np.where(drawn(64 * few, 20, B, seed=5) == 0, B(7), lines).astype(B)
    yield line("compare_lines", few, lines, other, zeros(few, I), I(64))
    yield line("price_of_option", few, floats(16 * few), zeros(few), I(16), block=128)


def tables(n, side) -> Launches:
    yield line("correct_gamma", n, drawn(n, 256, B), zeros(n), gamma_of=np.linspace(0, 1, 256, dtype=F) ** F(2.2))
    yield line("polynomial_of_block", n, floats(n), zeros(n), coefficients=floats(24))
    yield sheet("filter_five", side, floats(side * side), zeros(side * side), I(side), weights=floats(25))


def atomics(n, side) -> Launches:
    yield line("transfer_money", n, drawn(n, 10000), drawn(n, 10000, seed=3), zeros(10000, I))
    yield line("largest_by_key", n, drawn(n, 1000), drawn(n, 1 << 30, I), zeros(1000, I))
    yield line("append_positive", n, floats(n), zeros(n), zeros(1, U))
    yield line("push_to_lists", n, drawn(n, n // 8), np.full(n // 8, -1, I), zeros(n, I))


def few_warps(n, side) -> Launches:
    yield line("fibonacci_of_one_thread", 1, zeros(1, U), I(side), block=1)
    yield line("sum_of_one_warp", 32, floats(64 * side), zeros(1), I(64 * side), block=32)
    yield line("dot_of_one_block", 256, floats(256 * side), floats(256 * side), zeros(1), I(256 * side))
    items = 8 * side
    links = np.minimum(np.arange(items, dtype=I) + I(1) + drawn(items, 64, I), I(items))
    yield line("lengths_of_lists", 1024, links, zeros(1024, I), I(items), block=64)
    yield line("sort_in_a_warp", side, drawn(64 * side, 1000, I), block=32, grid=side)
    edges = 2 * side
    ends = drawn(edges, 256, I), drawn(edges, 256, I, seed=4), drawn(edges, 50, I, seed=6)
    yield line("relax_all_edges", 256, *ends, zeros(256, I), I(edges), I(20))
    yield line("sieve", side, zeros(4096 * side // 8, B), U(4096 * side // 8), block=64, grid=side // 8)
    yield line("edit_distance", 257, drawn(256, 4, B), drawn(side, 4, B, seed=8), zeros(257, I), I(side), block=257)
    yield line("one_row_of_mandelbrot", side, zeros(32 * side, I), I(side), I(200), block=64)
